"""Records of partitions as record batches: collected without a producer, and sealed with its sequences later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from gregor.protocol.records.batch import (
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_BIT,
    Buffer,
    append_record,
    seal_batch,
)
from gregor.protocol.records.compression import compress
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.sink.identity import ProducerIdentity
from gregor.spark_jobs.sink.options import SinkOptions

Headers = Sequence[tuple[str, bytes | None]]

MAX_OPEN_BYTES = 32 * 1024 * 1024
"""Of all partitions (Kafka's default of buffer.memory)."""
MAX_RECORD_OVERHEAD = 26
"""Bytes of a record besides key, value and headers: length, attributes, deltas, lengths and header count at their
largest (DefaultRecord.MAX_RECORD_OVERHEAD is 21; the varint of the length itself has 5)."""
_MAX_HEADER_OVERHEAD = 10


class Group(NamedTuple):
    """Consecutive rows of one partition."""

    partition: TopicPartition
    start: int
    end: int


class Segment(NamedTuple):
    """Rows of one partition that join one batch; `first_delta` is the number of records that are in it before them."""

    start: int
    end: int
    first_delta: int


class EncodableRows(Protocol):
    """Rows without headers, those of one partition together, see encoding.Rows."""

    groups: Sequence[Group]

    def largest(self) -> list[tuple[TopicPartition, int]]: ...

    def segments(self, start: int, end: int, count: int, size_bytes: int, batch_bytes: int) -> Iterator[Segment]: ...

    def encoded(self, segments: Sequence[Segment]) -> list[memoryview]: ...


def max_size_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return an upper bound of the size of a record."""
    size = MAX_RECORD_OVERHEAD + (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
    for name, content in headers:
        size += _MAX_HEADER_OVERHEAD + 4 * len(name) + (len(content) if content is not None else 0)
    return size


class ClosedBatch(NamedTuple):
    """A batch that gets no more records: its records, compressed, behind the room for the header."""

    partition: TopicPartition
    data: bytearray
    records: int
    timestamp_ms: int

    def seal(self, identity: ProducerIdentity, codec: int, base_sequence: int) -> None:
        """Fill in the header."""
        seal_batch(
            self.data,
            attributes=codec | (TRANSACTIONAL_BIT if identity.transactional else 0),
            last_offset_delta=self.records - 1,
            base_timestamp=self.timestamp_ms,
            max_timestamp=self.timestamp_ms,
            record_count=self.records,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=base_sequence,
        )


class PartitionBatches:
    """Collects the records of one partition. The records of a batch have one timestamp, that of its first."""

    def __init__(self, partition: TopicPartition, codec: int) -> None:
        self._partition = partition
        self._codec = codec
        self._body = bytearray(RECORD_BATCH_OVERHEAD)
        self._timestamp_ms = 0
        self.count = 0
        """The number of records of the open batch."""

    @property
    def size_bytes(self) -> int:
        """Return the size of the open batch before compression; 0 without a record."""
        return len(self._body) if self.count else 0

    def append(self, key: bytes | None, value: bytes | None, headers: Headers, now_ms: int) -> None:
        """Add a record to the open batch."""
        if not self.count:
            self._timestamp_ms = now_ms
        append_record(self._body, 0, self.count, key, value, headers)
        self.count += 1

    def append_encoded(self, records: Buffer, count: int, now_ms: int) -> None:
        """Add records that are encoded, with offset deltas from `count` of the open batch on."""
        if not self.count:
            self._timestamp_ms = now_ms
        self._body += records
        self.count += count

    def close_batch(self) -> ClosedBatch:
        """Return the open batch; the next record begins another one."""
        assert self.count, "an open batch has a record"
        data, count = self._body, self.count
        if self._codec:
            with memoryview(data) as view:
                compressed = compress(self._codec, view[RECORD_BATCH_OVERHEAD:])
            data = bytearray(RECORD_BATCH_OVERHEAD)
            data += compressed
        self._body, self.count = bytearray(RECORD_BATCH_OVERHEAD), 0
        return ClosedBatch(self._partition, data, count, self._timestamp_ms)


class Collector:
    """Collects the records of many partitions, of each in batches of batch.size bytes."""

    def __init__(self, options: SinkOptions, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._options = options
        self._now_ms = now_ms
        self._open: dict[TopicPartition, PartitionBatches] = {}
        self._open_bytes = 0
        self._closed: list[ClosedBatch] = []

    def append(self, partition: TopicPartition, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Append a record to the open batch of its partition, which is closed first if the record does not fit."""
        size_bytes = max_size_bytes(key, value, headers)
        self._check_size(partition, size_bytes)
        batches = self._batches_of(partition)
        if batches.size_bytes and batches.size_bytes + size_bytes > self._options.batch_bytes:
            self._close(batches)
        before = batches.size_bytes
        batches.append(key, value, headers, self._now_ms())
        self._open_bytes += batches.size_bytes - before
        self._limit_open_bytes()

    def append_rows(self, rows: EncodableRows) -> None:
        """Append rows to the open batches of their partitions, each of which is closed first when it is full."""
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
                self._close(batches)
            before = batches.size_bytes
            batches.append_encoded(records, segment.end - segment.start, self._now_ms())
            self._open_bytes += batches.size_bytes - before
        self._limit_open_bytes()

    def flush(self) -> None:
        """Close all open batches."""
        for batches in self._open.values():
            if batches.count:
                self._close(batches)

    def closed(self) -> list[ClosedBatch]:
        """Return the closed batches, those of a partition in their order, and forget them."""
        found, self._closed = self._closed, []
        return found

    def _batches_of(self, partition: TopicPartition) -> PartitionBatches:
        batches = self._open.get(partition)
        if batches is None:
            batches = self._open[partition] = PartitionBatches(partition, self._options.codec)
        return batches

    def _close(self, batches: PartitionBatches) -> None:
        self._open_bytes -= batches.size_bytes
        self._closed.append(batches.close_batch())

    def _limit_open_bytes(self) -> None:
        if self._open_bytes > MAX_OPEN_BYTES:
            self.flush()

    def _check_size(self, partition: TopicPartition, size_bytes: int) -> None:
        if size_bytes > self._options.max_request_bytes:
            raise JobError(
                f"a record for {partition.topic}-{partition.partition} has {size_bytes} bytes, which is more than "
                f"kafka.max.request.size={self._options.max_request_bytes}; raise it and the topic's max.message.bytes"
            )
