"""A range read from the leader of its partition by Fetch requests, of which one is in flight while the response before
it is decoded."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import FetchRequest
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.arrow.decoder import Aborted, AbortedTransactions, Decoder, end_of_batches
from gregor.spark_jobs.arrow.plan import CorruptRecords, DataLoss
from gregor.spark_jobs.client.empty_fetches import EmptyFetches
from gregor.spark_jobs.client.failure import KafkaFailure, raise_if_throttled
from gregor.spark_jobs.client.offsets import EARLIEST, LATEST, list_offsets
from gregor.spark_jobs.client.settings import READ_COMMITTED, READ_UNCOMMITTED, ClientSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from gregor.spark_jobs.arrow.plan import ReadPlan
    from gregor.spark_jobs.client.cluster import Cluster

_log = logging.getLogger("gregor.spark_jobs.arrow")

FETCH_VERSIONS = 4, 18
FIRST_VERSION_WITH_LAST_EPOCH = 12  # Kafka 2.7
"""4: isolation level and record batches (Kafka 0.11)."""
LAST_VERSION_WITH_NAMES = 12

PARTITION_BYTES = 8 * 1024 * 1024
"""Of one response, unless max.partition.fetch.bytes is set: Kafka's default, 1 MiB, is that of many partitions."""

GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)


class _Position(Exception):
    """The offset to fetch is not in the leader's log: `first` to `end` are."""

    def __init__(self, first: int, end: int, found: str) -> None:
        super().__init__(found)
        self.first = first
        self.end = end
        self.found = found


class WireReader:
    """Reads one range. The decoder's next offset is where it starts and continues."""

    def __init__(
        self, cluster: Cluster, plan: ReadPlan, decoder: Decoder, aborted: AbortedTransactions | None = None
    ) -> None:
        """`aborted`, which the decoder follows, gets the transactions that responses name."""
        self._cluster = cluster
        self._plan = plan
        self._range = plan.range
        self._decoder = decoder
        self._aborted = aborted
        self._isolation = READ_COMMITTED if plan.read_committed else READ_UNCOMMITTED
        self._max_bytes = _partition_bytes(cluster.settings)
        self._empty = EmptyFetches(cluster, TopicPartition(plan.range.topic, plan.range.partition))
        self._last_epoch = -1
        """The leader epoch of the last batch: a leader without it answers where its log diverges (KIP-595)."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the range. Raises DataLoss, CorruptRecords, and KafkaFailure."""
        decoder = self._decoder
        retries, retried_at = self._cluster.retrying(), decoder.next_offset
        while decoder.next_offset < self._range.end_offset:
            try:
                yield from self._read_from_leader()
            except _Position as position:
                self._skip(position)
            except KafkaFailure as failure:
                self._empty.forget()
                if decoder.next_offset != retried_at:
                    retries, retried_at = self._cluster.retrying(), decoder.next_offset
                try:
                    retries.after(failure)
                except KafkaFailure as last:
                    if last.code not in GONE:
                        raise
                    self._skip(_Position(self._range.end_offset, self._range.end_offset, last.text))

    def _read_from_leader(self) -> Iterator[pa.RecordBatch]:
        """Fetch until the end of the range, until a request fails, or until one has to be repeated."""
        own, decoder = self._range, self._decoder
        leader = self._cluster.leader(own.topic, own.partition)
        topic_id = self._topic_id()
        highest = LAST_VERSION_WITH_NAMES if topic_id == ZERO_UUID else FETCH_VERSIONS[1]
        version = self._cluster.version(leader, FetchRequest, highest, FETCH_VERSIONS[0])
        self._cluster.send(leader, self._request(decoder.next_offset, topic_id, version), version)
        in_flight = True
        try:
            while in_flight:
                response = self._cluster.receive(leader)
                in_flight = False
                part = self._checked(response)
                data = part.records or b""
                next_offset, epoch = end_of_batches(data)
                if self._aborted is not None:
                    self._aborted.replace(
                        Aborted(one.first_offset, one.producer_id) for one in part.aborted_transactions or ()
                    )
                if next_offset <= decoder.next_offset:
                    if data:
                        yield from decoder.decode(data)  # it names what is malformed
                        raise self._no_batch()
                    self._end_or_fail(part)
                    return
                self._last_epoch = epoch
                if next_offset < own.end_offset:
                    self._cluster.send(leader, self._request(next_offset, topic_id, version), version)
                    in_flight = True
                yield from decoder.decode(data)
        finally:
            if in_flight:
                self._cluster.drop(leader)

    def _request(self, offset: int, topic_id: bytes, version: int) -> FetchRequest:
        """Return the request from an offset on. It waits only for a read that lasts: the log has the range."""
        own = self._range
        epoch = self._cluster.partition(own.topic, own.partition).leader_epoch
        part = FetchRequest.FetchPartition(
            partition=own.partition,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=self._last_epoch if version >= FIRST_VERSION_WITH_LAST_EPOCH else -1,
            partition_max_bytes=self._max_bytes,
        )
        return FetchRequest(
            max_wait_ms=self._cluster.settings.fetch_wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes,
            isolation_level=int(self._plan.read_committed),
            topics=[FetchRequest.FetchTopic(topic=own.topic, topic_id=topic_id, partitions=[part])],
        )

    def _topic_id(self) -> bytes:
        """Return the id of the topic. Raises _Position if it is another topic than that of the plan."""
        topic_id = bytes(self._cluster.topics([self._range.topic])[self._range.topic].topic_id)
        if not self._range.is_of(topic_id):
            end = self._range.end_offset
            raise _Position(end, end, "the topic was deleted and made again")
        return topic_id

    def _checked(self, response: Any) -> Any:
        """Return the partition in a response. Raises KafkaFailure and _Position for its errors."""
        name = f"{self._range.topic}-{self._range.partition}"
        if response.error_code:
            raise KafkaFailure(response.error_code, f"the leader of {name} refused a fetch")
        raise_if_throttled(response)
        for topic in response.responses:
            for part in topic.partitions:
                if part.partition_index != self._range.partition:
                    continue
                if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise self._out_of_range()
                if part.error_code:
                    raise KafkaFailure(
                        part.error_code, f"{name} cannot be fetched from offset {self._decoder.next_offset}"
                    )
                if part.diverging_epoch.end_offset >= 0:
                    raise self._diverged(part.diverging_epoch.end_offset)
                return part
        raise KafkaFailure(ErrorCode.UNKNOWN_SERVER_ERROR, f"a response to a fetch of {name} does not contain it")

    def _out_of_range(self) -> _Position:
        """Fetch the bounds of the log, and return the error that names them."""
        key = TopicPartition(self._range.topic, self._range.partition)
        first = list_offsets(self._cluster, {key: EARLIEST}, READ_UNCOMMITTED)[key].offset
        end = list_offsets(self._cluster, {key: LATEST}, READ_UNCOMMITTED)[key].offset
        if first <= self._decoder.next_offset <= end:
            raise KafkaFailure(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"{key.topic}-{key.partition}: its leader did not have the offset {self._decoder.next_offset}",
            )
        return _Position(first, end, f"the log has offsets {first} to {end - 1}")

    def _diverged(self, end: int) -> _Position:
        self._last_epoch = -1
        return _Position(
            end,
            end,
            f"the log was truncated to offset {end} after records behind it were read: an unclean leader election",
        )

    def _no_batch(self) -> CorruptRecords:
        own = self._range
        problem = "the leader returned bytes without a complete batch that reaches this offset"
        return CorruptRecords(own.topic, own.partition, self._decoder.next_offset, problem)

    def _end_or_fail(self, part: Any) -> None:
        """End the range if no record is left in it, else let the caller fetch again; raise KafkaFailure if its records
        are not committed yet."""
        limit = part.last_stable_offset if self._plan.read_committed else part.high_watermark
        if limit < self._range.end_offset:
            what = "last stable offset" if self._plan.read_committed else "high watermark"
            raise KafkaFailure(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"{self._range.topic}-{self._range.partition} has the {what} {limit}, below the end offset "
                f"{self._range.end_offset}",
            )
        if self._empty.is_empty(self._decoder.next_offset):
            self._decoder.skip_to(self._range.end_offset)

    def _skip(self, position: _Position) -> None:
        """Continue at the first offset that is there, or raise DataLoss."""
        decoder, end = self._decoder, self._range.end_offset
        inside = decoder.next_offset < position.first < end
        lost = decoder.next_offset, position.first if inside else end
        failure = DataLoss(self._range.topic, self._range.partition, lost, position.found)
        if self._plan.fail_on_data_loss:
            raise failure
        _log.warning("failOnDataLoss is false: %s", failure)
        decoder.skip_to(position.first if inside else end)


def _partition_bytes(settings: ClientSettings) -> int:
    given = settings.max_partition_fetch_bytes
    default = given == ClientSettings.max_partition_fetch_bytes
    return min(PARTITION_BYTES if default else given, settings.fetch_max_bytes)
