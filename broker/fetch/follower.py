"""One fetch of a follower: what is read for its response, and the wait for records.

A fetch works on the busy positions of its session (fetch.follower_session), within the limits of each. A partition with
nothing new but its high watermark joins a response that is sent anyway, and causes none.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gregor.broker.fetch.delayed import WaitingFetch
from gregor.broker.fetch.follower_session import propose_expansion
from gregor.broker.fetch.reads import MAX_FETCHES, RepeatedRead, read_partition, refused_partition
from gregor.protocol.errors import KafkaError
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import FetchRequest, FetchResponse
from gregor.replication.partition.offset_lookup import diverging_epoch
from gregor.storage.fs.cached_reads import NotCached
from gregor.storage.log.log import LogSlice

if TYPE_CHECKING:
    from gregor.broker.context import Call, DataContext
    from gregor.broker.fetch.follower_session import AlterPartition, FetchPosition, FollowerSession
    from gregor.replication.partition.partition import Partition
    from gregor.replication.partition.throttle import ReplicaThrottle

MAX_PARTITIONS = 500
"""Limit of the partitions in one response; the others are in the next one, for which the follower sends at once."""
MAX_PAUSE_S = 1.0
"""The rate of a throttle may have changed by then."""


class FollowerRead(RepeatedRead):
    """The partitions of one fetch, read for its response."""

    __slots__ = (
        "_alter_partition",
        "_incremental",
        "_max_bytes",
        "_min_bytes",
        "_quiet",
        "_throttle",
        "session",
        "throttled_s",
    )

    def __init__(
        self,
        broker: DataContext,
        session: FollowerSession,
        request: FetchRequest,
        call: Call,
        incremental: bool,
        alter_partition: AlterPartition | None,
        throttle: ReplicaThrottle | None,
    ) -> None:
        super().__init__(broker, call)
        self.session = session
        self.throttled_s = 0.0
        """Time until records may be sent to a throttled replica; 0 if none is throttled."""
        self._alter_partition = alter_partition
        self._throttle = throttle
        self._incremental = incremental
        self._max_bytes = min(request.max_bytes, broker.config["fetch.max.bytes"])
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._quiet: list[FetchPosition] = []
        """Positions with nothing new but the high watermark, which joins a response that is sent anyway."""

    def _row(self) -> list[FetchPosition]:
        """Return the positions to work on now; the session's next fetch works on the others."""
        session = self.session
        return session.row(MAX_PARTITIONS if session.id else len(session.positions))

    def arrived(self, now_ms: int, broker_epoch: int) -> None:
        """Record the follower's positions, from the request. `broker_epoch`: of its registration, -1 for none."""
        session = self.session
        replica_id = session.replica_id
        for position in self._row():
            partition = position.find(self._broker)
            if (
                partition is None
                or partition.leadership.log is None
                or position.leader_epoch not in (-1, partition.leader_epoch)
                or not partition.log_start_offset <= position.offset <= partition.log_end_offset
            ):
                continue
            # The position of a diverging follower does not show how much of this log it has.
            try:
                if diverging_epoch(partition, position.last_fetched_epoch, position.offset) is not None:
                    continue
                partition.leadership.update_follower(
                    replica_id,
                    position.offset,
                    now_ms,
                    log_start_offset=position.log_start_offset,
                    broker_epoch=broker_epoch,
                )
                if replica_id not in partition.in_sync.isr:
                    propose_expansion(self._alter_partition, partition, replica_id)
            except KafkaError:
                continue  # the response contains this error

    def collect(self) -> None:
        session = self.session
        self.missing = []
        self.throttled_s = 0.0
        left, total = self._max_bytes, 0
        # The busy positions above the limit are for the follower's next fetch, which it should send at once.
        self.satisfied = not session.positions or (len(session.busy) > MAX_PARTITIONS and session.id != 0)
        for position in self._row():
            if self._incremental and self._is_quiet(position):
                if position.is_idle:
                    session.make_idle(position)
                else:
                    session.rest(position)
                    self._quiet.append(position)
                continue
            try:
                size, data = self._read(position, left, total == 0)
            except NotCached as missing:
                self.missing.append(missing)
                continue
            except KafkaError as error:
                self.satisfied = True
                self._found.append((position, refused_partition(position.index, error.code, [])))
                continue
            total += size
            left -= size
            if not self._is_news(position, data):
                if position.is_idle:
                    session.make_idle(position)
                elif not total or position in session.resting:  # else it may lack nothing but room in this response
                    session.rest(position)
                continue
            if (
                data.diverging_epoch.epoch >= 0
                or position.log_start_offset < data.log_start_offset != position.last_sent_log_start_offset
                or (session.notifies_at_once and data.high_watermark != position.last_sent_high_watermark)
            ):
                self.satisfied = True
            self._found.append((position, data))
        if total >= self._min_bytes:
            self.satisfied = True

    def _read(self, position: FetchPosition, left: int, first: bool) -> tuple[int, FetchResponse.PartitionData]:
        """Return the size of the records that a partition contributes, and its part of the response."""
        partition = position.find(self._broker)
        if partition is None:
            raise self._unknown(*position.key)
        if position.leader_epoch >= 0 and position.leader_epoch != partition.leader_epoch:
            partition.check_epoch(position.leader_epoch)
        partition.leadership.check_follows(self.session.replica_id)
        diverging = diverging_epoch(partition, position.last_fetched_epoch, position.offset)
        if diverging is not None:
            data = read_partition(position.index, partition.log, b"", [])
            epoch, end_offset = diverging
            return 0, data.replaced(diverging_epoch=FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset))
        if self._must_wait(position, partition):
            return 0, read_partition(position.index, partition.log, b"", [])
        # The first batch is sent whole even above every limit: a follower must not get stuck on it.
        piece = partition.read(
            position.offset,
            min(position.max_bytes, left) if left > 0 or first else 0,
            replica_id=self.session.replica_id,
            min_one_batch=first,
            waits_for_disk=self._fetches >= MAX_FETCHES,
        )
        size = piece.size_bytes
        if size and not piece.active:
            self.satisfied = True  # the next segment has more records, of which no later append notifies
        return size, read_partition(position.index, partition.log, piece if size else b"", [])

    def _is_quiet(self, position: FetchPosition) -> bool:
        """Return whether the follower has all records, and knows the log start offset."""
        partition = position.find(self._broker)
        if partition is None or (log := partition.leadership.log) is None:
            return False
        offsets = log.offsets
        return (
            position.offset == offsets.log_end_offset
            and position.leader_epoch in (-1, partition.leader_epoch)
            and position.last_fetched_epoch in (-1, log.latest_epoch())
            and position.last_sent_log_start_offset == offsets.log_start_offset
            and (position.last_sent_high_watermark == offsets.high_watermark or not self.session.notifies_at_once)
        )

    def _must_wait(self, position: FetchPosition, partition: Partition) -> bool:
        """Return whether the throttle delays the records. Replicas in sync are exempt: else the in-sync replicas would
        shrink and expand all the time."""
        throttle = self._throttle
        in_sync = self.session.replica_id in partition.in_sync.isr
        if throttle is None or in_sync or not self._is_throttled(position, throttle):
            return False
        wait_s = throttle.wait_s()
        self.throttled_s = max(self.throttled_s, wait_s)
        return wait_s > 0

    def _is_throttled(self, position: FetchPosition, throttle: ReplicaThrottle) -> bool:
        log = None if position.partition is None else position.partition.log
        return log is not None and throttle.names(log.config.leader_replication_throttled_replicas, position.index)

    def _is_news(self, position: FetchPosition, data: FetchResponse.PartitionData) -> bool:
        return bool(
            not self._incremental
            or data.records
            or data.high_watermark != position.last_sent_high_watermark
            or data.log_start_offset != position.last_sent_log_start_offset
            or data.diverging_epoch.epoch >= 0
        )

    def release(self) -> None:
        super().release()
        self._quiet.clear()

    def response(self) -> FetchResponse:
        session, throttle = self.session, self._throttle
        topics: dict[tuple[str, Uuid], FetchResponse.FetchableTopicResponse] = {}
        leaders: list[int] = []
        for position in self._quiet:
            partition = position.partition
            if partition is not None and partition.high_watermark != position.last_sent_high_watermark:
                data = FetchResponse.PartitionData(
                    partition_index=position.index,
                    high_watermark=partition.high_watermark,
                    last_stable_offset=partition.last_stable_offset,
                    log_start_offset=partition.log_start_offset,
                    records=b"",
                )
                self._found.append((position, data))
        for position, data in self._found:
            name, topic_id, _ = position.key
            topic = topics.get((name, topic_id))
            if topic is None:
                topic = topics[name, topic_id] = FetchResponse.FetchableTopicResponse(
                    topic=name, topic_id=topic_id, partitions=[]
                )
            if data.error_code:
                data = self._with_leader(name, topic_id, data, leaders)
            topic.partitions.append(data)
            if isinstance(data.records, LogSlice):
                if position.partition is not None:
                    position.partition.traffic.replication_bytes_out += data.records.size_bytes
                if throttle is not None and self._is_throttled(position, throttle):
                    throttle.charge(data.records.size_bytes)
            if data.diverging_epoch.epoch >= 0:
                position.forget_last_sent()  # a follower that truncates ignores the other fields
            else:
                position.last_sent_high_watermark = data.high_watermark
                position.last_sent_log_start_offset = data.log_start_offset
            if data.error_code:
                session.rest(position)
            elif position in session.busy or position in session.resting:
                # A partition of which records were sent may have more, and moves to the end of the row.
                session.make_idle(position)
                if data.records:
                    session.wake(position)
                elif not position.is_idle:
                    session.rest(position)
        self._found = []
        self._quiet = []
        return self._answer(session.id, list(topics.values()), leaders)


class ParkedFetch(WaitingFetch):
    """A follower's fetch that waits for records: completed when its session's partitions change, or after its time."""

    __slots__ = ("_room", "whose")

    _read: FollowerRead

    def __init__(self, loop: asyncio.AbstractEventLoop, read: FollowerRead, max_wait_s: float) -> None:
        self._room: asyncio.Handle | None = None
        super().__init__(loop, read, max_wait_s)
        read.session.park(self)
        self.whose = f" of broker {read.session.replica_id}"
        if not read.missing:
            self._wait_on()

    def _let_go(self) -> None:
        if self._room is not None:
            self._room.cancel()
        self._read.release()
        self._read.session.unpark(self)

    def give_way(self) -> None:
        """Complete without records: the follower has sent another fetch, or its session ends."""
        self.complete(FetchResponse(session_id=self._read.session.id))

    def _wait_on(self) -> None:
        # No append notifies a throttled replica of the time at which records may be sent again.
        if self._read.throttled_s and self._room is None:
            self._room = self._loop.call_later(min(self._read.throttled_s, MAX_PAUSE_S), self._there_is_room)

    def _there_is_room(self) -> None:
        self._room = None
        self.moved()
