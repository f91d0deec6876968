"""The times of first unread records: where a group is behind, the record at its committed offset, or the next one.

Only the header of the record's batch is read, from the log or, where another broker leads, from a fetch of that batch:
the time is that of the batch's first record, right within one batch. Nothing is kept here for longer than a scrape but
what another leader answers too late for it: that is for the next one. The fetches name the replica id of debugging
tools, which gregor's leaders do not count as reads of consumers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from gregor.broker.metrics.lag.leader_requests import LeaderRequests
from gregor.protocol.channel_security import PLAINTEXT_CHANNEL, ChannelSecurity
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import ZERO_UUID, Uuid
from gregor.protocol.messages import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from gregor.protocol.records.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    MAGIC_AT,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_BIT,
)
from gregor.protocol.topic_partition import TopicPartitionKey
from gregor.protocol.turns import ITEMS_PER_STEP, Steps
from gregor.replication.partition.offset_lookup import DEBUGGING
from gregor.replication.partition.partition import NO_EPOCH
from gregor.storage.fs.cached_reads import NotCached

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.config.broker import BrokerConfig
    from gregor.replication.channels.peer import Peer
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.partition.partition import Partition
    from gregor.replication.partition.replica_manager import ReplicaManager

MAX_WAIT_S = 1.0
PARTITION_BYTES = 16 * 1024
"""Of a partition in a fetch of many: a usual batch. A larger one is fetched alone: the first of a fetch comes whole."""
RESPONSE_BYTES = 1024 * 1024
NO_RECORD = -1
"""In place of a time: only markers of transactions stand from the position to the high watermark."""
_LAST_WITH_NAMES = 12
_LOG_START = -2
"""As a time in ListOffsets: the first offset of the log."""
_MAGIC = 2
_MAX_READS = 8
"""Of one log: batches that are control batches or not in the page cache."""


class Position(NamedTuple):
    """An offset that a group stands at, in the log of a leader: an unclean election may have put another record there,
    and so may a topic that was deleted and made again."""

    topic: str
    partition: int
    offset: int
    topic_id: Uuid = ZERO_UUID
    """ZERO_UUID where it is not known, or the topic has none."""
    leader_epoch: int = NO_EPOCH
    """NO_EPOCH where it is not known."""


class _Batch(NamedTuple):
    """The header of a batch, as far as it matters here: the offset behind it, and the time of its first record."""

    next_offset: int
    time_ms: int | None
    is_control: bool


class FirstUnread:
    """`await refresh(...)`, then `time_ms(...)`. Lives on the event loop."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        image: MetadataImage,
        background: Background,
        security: ChannelSecurity = PLAINTEXT_CHANNEL,
    ) -> None:
        self._replicas = replicas
        self._image = image
        self._background = background
        self._times: dict[Position, int | None] = {}
        """Those that `time_ms` returns."""
        self._received: dict[Position, int | None] = {}
        """Those that were read since the last refresh ended."""
        self._requests: LeaderRequests[Position] = LeaderRequests(
            config, image, background, "first-unread", self._exchange, security
        )

    def time_ms(self, position: Position) -> int | None:
        """Return the time of the first record from a position on, in ms, or NO_RECORD; None where it is not known."""
        return self._times.get(position)

    async def refresh(self, positions: Iterable[Position]) -> None:
        """Read the times at these positions, those of other leaders for at most a second. Others are forgotten."""
        await self._background.search(self._read(positions))
        await self._requests.wait(MAX_WAIT_S)
        self._times, self._received = self._received, {}

    def close(self) -> None:
        self._requests.close()

    def _read(self, positions: Iterable[Position]) -> Steps[None]:
        answered, self._received = self._received, {}
        for count, position in enumerate(positions, 1):
            key = position.topic, position.partition
            if answered.get(position, NO_RECORD) != NO_RECORD:
                self._received[position] = answered[position]
            elif (own := self._replicas.get(*key)) is not None and own.is_leader:
                found = yield from time_in_log(own, position.offset, leader_only=True)
                if found is not None:
                    self._received[position] = found
            else:
                self._request(key, position)
            if not count % ITEMS_PER_STEP:
                yield None
        yield None

    def _request(self, key: TopicPartitionKey, position: Position) -> None:
        state = self._image.partition(*key)
        if state is not None and state.leader >= 0 and state.leader != self._replicas.broker_id:
            self._requests.add(state.leader, position)

    # -- from other leaders ----------------------------------------------------------------------------------------

    async def _exchange(self, peer: Peer, positions: list[Position]) -> None:
        alone = await self._fetch(peer, {position: position.offset for position in positions}, PARTITION_BYTES)
        while alone:
            position, offset = alone.popitem()
            alone.update(await self._fetch(peer, {position: offset}, 1))

    async def _fetch(self, peer: Peer, offsets: dict[Position, int], partition_bytes: int) -> dict[Position, int]:
        """Fetch a batch of each; return those that must be fetched alone, with their offsets."""
        topics: dict[str, FetchRequest.FetchTopic] = {}
        waiting: dict[TopicPartitionKey, Position] = {}
        again: dict[Position, int] = {}
        removed: list[Position] = []
        for position, offset in offsets.items():
            key = position.topic, position.partition
            if key in waiting:  # another group's: a fetch names a partition once
                again[position] = offset
                continue
            waiting[key] = position
            topic = topics.setdefault(position.topic, FetchRequest.FetchTopic(topic=position.topic))
            topic.partitions.append(
                FetchRequest.FetchPartition(
                    partition=position.partition, fetch_offset=offset, partition_max_bytes=partition_bytes
                )
            )
        request = FetchRequest(
            replica_id=DEBUGGING, max_wait_ms=0, min_bytes=0, max_bytes=RESPONSE_BYTES, topics=list(topics.values())
        )
        response: FetchResponse = await peer.send(request, newest=_LAST_WITH_NAMES)
        for found in response.responses:
            for part in found.partitions:
                requested = waiting.get((found.topic, part.partition_index))
                if requested is not None:
                    offset = offsets[requested]
                    following = self._keep(requested, offset, part)
                    if following == _LOG_START:
                        removed.append(requested)
                    elif following is not None and (following != offset or len(offsets) > 1):
                        again[requested] = following
        for position in removed:
            start = await self._log_start(peer, position)
            if start > offsets[position]:
                again[position] = start
        return again

    async def _log_start(self, peer: Peer, position: Position) -> int:
        """Return the log start offset at the leader, -1 if it does not answer with it."""
        wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=position.partition, timestamp=_LOG_START)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=position.topic, partitions=[wanted])
        response: ListOffsetsResponse = await peer.send(ListOffsetsRequest(replica_id=-1, topics=[topic]))
        found = [part for one in response.topics for part in one.partitions]
        return found[0].offset if len(found) == 1 and found[0].error_code == ErrorCode.NONE else -1

    def _keep(self, position: Position, offset: int, part: FetchResponse.PartitionData) -> int | None:
        """Keep the time of the batch in a response. Return the offset to fetch alone, where that is necessary, or
        _LOG_START where the records at the offset were removed."""
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return _LOG_START
        if part.error_code != ErrorCode.NONE:
            return None
        if offset >= part.high_watermark:
            self._received[position] = NO_RECORD
            return None
        records = memoryview(cast(bytes, part.records or b""))
        if len(records) < RECORD_BATCH_OVERHEAD:
            return None if len(records) else offset
        batch = _batch(records)
        if batch is None:
            return None
        if batch.is_control:
            return batch.next_offset
        self._received[position] = batch.time_ms
        return None


def time_in_log(partition: Partition, offset: int, *, leader_only: bool) -> Steps[int | None]:
    """As FirstUnread.time_ms, from the log of a partition on this broker. Each read is a step of its own. With
    `leader_only` the time is not known once this broker no longer leads: the high watermark of a follower is behind."""
    header = memoryview(bytearray(RECORD_BATCH_OVERHEAD))
    if partition.log is not None:
        offset = max(offset, partition.log.log_start_offset)
    for _ in range(_MAX_READS):
        yield None
        try:
            piece = partition.read(offset, 1, waits_for_disk=False, leader_only=leader_only)
        except NotCached as missing:
            try:
                yield missing.fetcher()
            except OSError:
                return None
            continue
        except KafkaError:
            return None
        try:
            if piece.size_bytes < RECORD_BATCH_OVERHEAD:
                return None if piece.size_bytes else NO_RECORD
            read = partial(piece.read_into, header)
            size_bytes = read() if piece.active else (yield read)
        except OSError:
            return None
        finally:
            piece.release()
        batch = _batch(header) if size_bytes == RECORD_BATCH_OVERHEAD else None
        if batch is None or not batch.is_control:
            return None if batch is None else batch.time_ms
        offset = batch.next_offset
    return None


def _batch(header: memoryview) -> _Batch | None:
    """Decode the header of a batch; None for one of an older format."""
    if header[MAGIC_AT] != _MAGIC:
        return None
    base, _, _, _, _, attributes, last_delta, base_ms, max_ms, *_ = HEADER.unpack_from(header)
    # Where the broker sets the times, and where the first field is the horizon of deletes, the largest time is the one.
    time_ms = max_ms if attributes & (TIMESTAMP_TYPE_BIT | DELETE_HORIZON_BIT) else base_ms
    return _Batch(base + last_delta + 1, None if time_ms == NO_TIMESTAMP else time_ms, bool(attributes & CONTROL_BIT))
