"""A small synchronous producer that writes under an identity that it is given.

It alone writes its partitions under that identity, and begins each at sequence 0. A batch whose response was lost is
sent again with the same sequence, so that the broker appends it once; each partition has at most one batch in flight.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ProduceRequest
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.failure import KafkaFailure, decisive
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.sink.batches import (
    MAX_RECORD_OVERHEAD,
    EncodableRows,
    Headers,
    PartitionBatches,
    Segment,
    max_size_bytes,
)
from gregor.spark_jobs.sink.identity import ProducerIdentity
from gregor.spark_jobs.sink.options import SinkOptions

_PRODUCE_VERSIONS = 3, 11
_MAX_BUFFERED_BYTES = 32 * 1024 * 1024
"""Of all partitions (Kafka's default of buffer.memory)."""
_ALL_IN_SYNC = -1

AddPartitions = Callable[[ProducerIdentity, Collection[TopicPartition]], None]


@dataclass
class Written:
    """The records that a producer has written to one partition. An offset is -1 if the broker has not returned it."""

    records: int = 0
    first_offset: int = -1
    last_offset: int = -1


class Producer:
    """Appends records to partitions; `flush` returns when all are written to all in-sync replicas.

    `add_partitions` is called before the first batch of a partition, if the identity is transactional.
    """

    def __init__(
        self,
        cluster: Cluster,
        identity: ProducerIdentity,
        options: SinkOptions,
        add_partitions: AddPartitions | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        assert identity.transactional == (add_partitions is not None)
        self._cluster = cluster
        self._identity = identity
        self._options = options
        self._add_partitions = add_partitions
        self._now_ms = now_ms
        self._open: dict[TopicPartition, PartitionBatches] = {}
        self._added: set[TopicPartition] = set()
        self._buffered_bytes = 0
        self.written: dict[TopicPartition, Written] = {}

    def send(self, partition: TopicPartition, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        """Append a record to the open batch of its partition, which is sent first if the record does not fit."""
        size_bytes = max_size_bytes(key, value, headers)
        self._check_size(partition, size_bytes)
        batches = self._batches_of(partition)
        if batches.size_bytes and batches.size_bytes + size_bytes > self._options.batch_bytes:
            self._write({partition: batches})
        batches.append(key, value, headers, self._now_ms())
        self._buffered_bytes += size_bytes
        if self._buffered_bytes > _MAX_BUFFERED_BYTES:
            self.flush()

    def send_rows(self, rows: EncodableRows) -> None:
        """Append rows to the open batches of their partitions, each of which is sent first when it is full."""
        for partition, size_bytes in rows.largest():
            self._check_size(partition, MAX_RECORD_OVERHEAD + size_bytes)
        segments: list[Segment] = []
        targets: list[TopicPartition] = []
        for partition, start, end in rows.groups:
            batches = self._batches_of(partition)
            for segment in rows.segments(start, end, batches.count, batches.size_bytes, self._options.batch_bytes):
                segments.append(segment)
                targets.append(partition)
        for partition, segment, records in zip(targets, segments, rows.encoded(segments), strict=True):
            batches = self._open[partition]
            if segment.first_delta != batches.count:
                self._write({partition: batches})
            batches.append_encoded(records, segment.end - segment.start, self._now_ms())
            self._buffered_bytes += len(records)
        if self._buffered_bytes > _MAX_BUFFERED_BYTES:
            self.flush()

    def _check_size(self, partition: TopicPartition, size_bytes: int) -> None:
        if size_bytes > self._options.max_request_bytes:
            raise JobError(
                f"a record for {partition.topic}-{partition.partition} has {size_bytes} bytes, which is more than "
                f"kafka.max.request.size={self._options.max_request_bytes}; raise it and the topic's max.message.bytes"
            )

    def _batches_of(self, partition: TopicPartition) -> PartitionBatches:
        batches = self._open.get(partition)
        if batches is None:
            self._require(partition)
            batches = self._open[partition] = PartitionBatches(self._identity, self._options.codec)
        return batches

    def _require(self, partition: TopicPartition) -> None:
        """Raise JobError if the partition does not exist."""
        name = partition.topic
        topic = self._cluster.retrying().run(lambda: self._cluster.topics([name])).get(name)
        if topic is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise JobError(f"the topic {name} does not exist; create it: gregor topics --create --topic {name}")
        if topic.error_code == ErrorCode.NONE and partition.partition not in topic.partitions:
            raise JobError(
                f"a row has the partition {partition.partition}, but {name} has {len(topic.partitions)} partitions"
            )

    def flush(self) -> None:
        """Write all open batches."""
        pending = {partition: batches for partition, batches in self._open.items() if batches.size_bytes}
        if pending:
            self._write(pending)
        self._buffered_bytes = 0

    def _write(self, pending: Mapping[TopicPartition, PartitionBatches]) -> None:
        missing = [partition for partition in self._open if partition not in self._added]
        if self._add_partitions is not None and missing:
            self._add_partitions(self._identity, missing)
            self._added.update(missing)
        unsent: dict[TopicPartition, tuple[bytearray, int]] = {}
        for partition, batches in pending.items():
            self._buffered_bytes -= batches.size_bytes
            unsent[partition] = batches.close_batch()
        retries = self._cluster.retrying()
        while unsent:
            failure = self._attempt(unsent)
            if failure is not None:
                retries.after(failure)

    def _attempt(self, unsent: dict[TopicPartition, tuple[bytearray, int]]) -> KafkaFailure | None:
        """Send the batches to their leaders and remove those that are written; return a failure, a final one first."""
        failures: list[KafkaFailure] = []
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in unsent:
            try:
                by_leader.setdefault(self._cluster.leader(*partition), []).append(partition)
            except KafkaFailure as failure:
                failures.append(failure)
        for leader, partitions in by_leader.items():
            for request in self._requests(unsent, partitions):
                try:
                    failures += self._produce(leader, request, unsent)
                except KafkaFailure as failure:
                    failures.append(failure)
        return decisive(failures)

    def _requests(
        self, unsent: Mapping[TopicPartition, tuple[bytearray, int]], partitions: list[TopicPartition]
    ) -> list[ProduceRequest]:
        """Return requests of at most max.request.size; a batch above it has a request of its own."""
        requests: list[ProduceRequest] = []
        size_bytes = 0
        topics: dict[str, ProduceRequest.TopicProduceData] = {}
        for partition in partitions:
            batch, _ = unsent[partition]
            if not requests or size_bytes + len(batch) > self._options.max_request_bytes:
                requests.append(
                    ProduceRequest(
                        transactional_id=self._identity.transactional_id,
                        acks=_ALL_IN_SYNC,
                        timeout_ms=self._cluster.settings.request_timeout_ms,
                    )
                )
                size_bytes, topics = 0, {}
            size_bytes += len(batch)
            topic = topics.get(partition.topic)
            if topic is None:
                topic = topics[partition.topic] = ProduceRequest.TopicProduceData(name=partition.topic)
                requests[-1].topic_data.append(topic)
            part = ProduceRequest.PartitionProduceData(index=partition.partition, records=batch)
            topic.partition_data.append(part)
        return requests

    def _produce(
        self, leader: int, request: ProduceRequest, unsent: dict[TopicPartition, tuple[bytearray, int]]
    ) -> list[KafkaFailure]:
        lowest, highest = _PRODUCE_VERSIONS
        version = self._cluster.version(leader, ProduceRequest, highest, lowest)
        failures = []
        for topic in self._cluster.exchange(leader, request, version).responses:
            for answer in topic.partition_responses:
                partition = TopicPartition(topic.name, answer.index)
                # A duplicate is a batch whose first response was lost.
                if answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._note(partition, unsent.pop(partition)[1], answer.base_offset)
                else:
                    failures.append(_refusal(partition, answer.error_code, answer.error_message))
        return failures

    def _note(self, partition: TopicPartition, records: int, base_offset: int) -> None:
        written = self.written.setdefault(partition, Written())
        written.records += records
        if base_offset >= 0:
            if written.first_offset < 0:
                written.first_offset = base_offset
            written.last_offset = base_offset + records - 1


def _refusal(partition: TopicPartition, code: int, message: str | None) -> KafkaFailure:
    text = f"a batch for {partition.topic}-{partition.partition} was not written"
    if code == ErrorCode.MESSAGE_TOO_LARGE:
        text += "; raise max.message.bytes of the topic, or lower kafka.batch.size"
    elif message:
        text += f": {message}"
    return KafkaFailure(code, text)
