"""Records of one partition as record batches of one producer, with sequences from 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from gregor.spark_jobs.sink.identity import ProducerIdentity

Headers = Sequence[tuple[str, bytes | None]]

_MAX_SEQUENCE = 2**31 - 1
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


class PartitionBatches:
    """Collects the records of one partition. The records of a batch have one timestamp, that of its first."""

    def __init__(self, identity: ProducerIdentity, codec: int) -> None:
        self._identity = identity
        self._attributes = codec | (TRANSACTIONAL_BIT if identity.transactional else 0)
        self._codec = codec
        self._body = bytearray(RECORD_BATCH_OVERHEAD)
        self._count = 0
        self._timestamp_ms = 0
        self._next_sequence = 0

    @property
    def size_bytes(self) -> int:
        """Return the size of the open batch before compression; 0 without a record."""
        return len(self._body) if self._count else 0

    def append(self, key: bytes | None, value: bytes | None, headers: Headers, now_ms: int) -> None:
        """Add a record to the open batch."""
        if not self._count:
            self._timestamp_ms = now_ms
        append_record(self._body, 0, self._count, key, value, headers)
        self._count += 1

    @property
    def count(self) -> int:
        """Return the number of records of the open batch."""
        return self._count

    def append_encoded(self, records: Buffer, count: int, now_ms: int) -> None:
        """Add records that are encoded, with offset deltas from `count` of the open batch on."""
        if not self._count:
            self._timestamp_ms = now_ms
        self._body += records
        self._count += count

    def close_batch(self) -> tuple[bytearray, int]:
        """Return the open batch and its number of records; the next record begins another batch."""
        assert self._count, "an open batch has a record"
        batch, count = self._body, self._count
        if self._codec:
            with memoryview(batch) as view:
                compressed = compress(self._codec, view[RECORD_BATCH_OVERHEAD:])
            batch = bytearray(RECORD_BATCH_OVERHEAD)
            batch += compressed
        seal_batch(
            batch,
            attributes=self._attributes,
            last_offset_delta=count - 1,
            base_timestamp=self._timestamp_ms,
            max_timestamp=self._timestamp_ms,
            record_count=count,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=self._next_sequence,
        )
        self._next_sequence = (self._next_sequence + count) & _MAX_SEQUENCE
        self._body, self._count = bytearray(RECORD_BATCH_OVERHEAD), 0
        return batch, count
