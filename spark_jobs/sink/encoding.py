"""Arrow columns as the records of batches, without a Python object for a row. The layout of a record is in
gregor.protocol.records.batch; these have no headers, and the timestamp of their batch.

Arrow joins the fields of each record: numbers before the key, the key, the length of the value, the value, and the
count of headers. The bytes of the joined array are the records, one after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gregor.protocol.records.batch import RECORD_BATCH_OVERHEAD
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.sink.batches import Group, Segment

Numbers = NDArray[np.int64]
Octets = NDArray[np.uint8]

MAX_VARINT_BYTES = 5
_NULL_LENGTH = -1
_NO_HEADERS = b"\0"
_FIXED_BYTES = 3
"""Attributes, timestamp delta and count of headers."""


class Rows:
    """Rows without headers, those of one partition together, in the order in which they came."""

    def __init__(self, groups: Sequence[Group], keys: pa.BinaryArray, values: pa.BinaryArray) -> None:
        self.groups = groups
        self._keys = keys
        self._values = values
        self._key_lengths = _lengths(keys)
        self._value_lengths = _lengths(values)
        self._contents: Numbers = np.maximum(self._key_lengths, 0) + np.maximum(self._value_lengths, 0)
        lengths = varint_sizes(self._key_lengths) + varint_sizes(self._value_lengths)
        self._sizes_without_delta = _FIXED_BYTES + lengths + self._contents
        largest = self._sizes_without_delta + MAX_VARINT_BYTES
        self._ends: Numbers = np.cumsum(largest + varint_sizes(largest))

    def largest(self) -> list[tuple[TopicPartition, int]]:
        """Return the partitions with the most bytes of a key and its value."""
        starts = [group.start for group in self.groups]
        sizes = np.maximum.reduceat(self._contents, starts).tolist()
        return [(group.partition, size) for group, size in zip(self.groups, sizes, strict=True)]

    def segments(self, start: int, end: int, count: int, size_bytes: int, batch_bytes: int) -> Iterator[Segment]:
        """Divide rows of one partition among batches: the open one, with so many records and bytes, and new ones."""
        while start < end:
            stop = self._fitting(start, end, batch_bytes - max(size_bytes, RECORD_BATCH_OVERHEAD))
            if stop == start and not count:
                stop += 1  # larger than a batch: it has one of its own
            if stop > start:
                yield Segment(start, stop, count)
            start, count, size_bytes = stop, 0, 0

    def _fitting(self, start: int, end: int, room_bytes: int) -> int:
        """Return the end of the rows from `start` on that need at most so many bytes, whatever their offset deltas."""
        before = int(self._ends[start - 1]) if start else 0
        stop = int(np.searchsorted(self._ends, before + room_bytes, side="right"))
        return min(max(start, stop), end)

    def encoded(self, segments: Sequence[Segment]) -> list[memoryview]:
        """Return the records of each of these segments, which have all rows in their order."""
        counts = [segment.end - segment.start for segment in segments]
        deltas = np.arange(len(self._sizes_without_delta), dtype=np.int64)
        deltas += np.repeat([segment.first_delta - segment.start for segment in segments], counts)
        sizes = self._sizes_without_delta + varint_sizes(deltas)
        zeros = np.zeros(len(deltas), dtype=np.int64)
        prefixes = _varints(sizes, zeros, zeros, deltas, self._key_lengths)
        joined = pc.binary_join_element_wise(
            prefixes,
            self._keys,
            _varints(self._value_lengths),
            self._values,
            pa.scalar(_NO_HEADERS),
            pa.scalar(b""),
            null_handling="replace",
            null_replacement=b"",
        )
        data = memoryview(joined.buffers()[2])
        ends = np.frombuffer(joined.buffers()[1], dtype=np.int32)[joined.offset :]
        return [data[ends[segment.start] : ends[segment.end]] for segment in segments]


def grouped_rows(
    topics: pa.StringArray, partitions: pa.Int32Array, keys: pa.BinaryArray, values: pa.BinaryArray
) -> Rows:
    """Return at least one row by their partitions; the columns have no null topic or partition."""
    names = topics.dictionary_encode()
    codes = (names.indices.to_numpy().astype(np.int64) << 32) + partitions.to_numpy()
    order = None
    if (codes != codes[0]).any():
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
    starts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist()]
    groups = []
    for start, end in zip(starts, [*starts[1:], len(codes)], strict=True):
        name = (int(codes[start]) + (1 << 31)) >> 32  # a partition may be below 0: the producer refuses it
        topic = names.dictionary[name].as_py()
        groups.append(Group(TopicPartition(topic, int(codes[start]) - (name << 32)), start, end))
    if order is not None:
        keys, values = keys.take(pa.array(order)), values.take(pa.array(order))
    return Rows(groups, keys, values)


def varint_sizes(numbers: Numbers) -> Numbers:
    """Return the sizes of numbers of 32 bits as varints."""
    bits = _zigzag(numbers)
    sizes = np.ones(len(numbers), dtype=np.int64)
    for size in range(1, MAX_VARINT_BYTES):
        longer = bits >> (7 * size) > 0
        if not longer.any():
            break
        sizes += longer
    return sizes


def _zigzag(numbers: Numbers) -> Numbers:
    return (numbers << 1) ^ (numbers >> 63)


def _varints(*columns: Numbers) -> pa.BinaryArray:
    """Return for each row the varints of its numbers in one piece."""
    count = len(columns[0])
    parts: list[Octets] = []
    used: list[NDArray[np.bool_]] = []
    for numbers in columns:
        left = _zigzag(numbers)
        is_used = np.ones(count, dtype=bool)
        while True:
            more = left > 0x7F
            parts.append(((left & 0x7F) | (more << 7)).astype(np.uint8))
            used.append(is_used)
            if not more.any():
                break
            left = left >> 7
            is_used = more
    mask = np.column_stack(used)
    octets = np.column_stack(parts)[mask]
    bounds = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(mask.sum(axis=1), out=bounds[1:])
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(octets)])


def _lengths(array: pa.BinaryArray) -> Numbers:
    lengths = pc.binary_length(array)
    if lengths.null_count:
        lengths = lengths.fill_null(_NULL_LENGTH)
    return lengths.to_numpy().astype(np.int64)
