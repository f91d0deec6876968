"""Partitions of rows as Kafka's default partitioner chooses them (BuiltInPartitioner): murmur2 of the key, and for null
keys one partition for many rows. The hashes of a column are computed together, four bytes of each key at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gregor.spark_jobs.errors import JobError

Hashes = NDArray[np.uint32]
Numbers = NDArray[np.int64]

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
_WORD_BYTES = 4
_MAX_BYTES_IN_STEPS = 512
"""The hashes of longer keys are computed one by one: few keys would need many steps."""

_USUAL_TYPES = {pa.large_binary(): pa.binary(), pa.large_string(): pa.string()}

STICKY_ROWS = 1000
"""Consecutive rows with null keys that go to one partition. Kafka changes it after batch.size bytes (KIP-794)."""


def murmur2(data: bytes) -> int:
    """Return Kafka's hash of a key, as an unsigned number of 32 bits (Utils.murmur2)."""
    length = len(data)
    hashed = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ (word >> 24)) * _MULTIPLIER & _MASK
        hashed = (hashed * _MULTIPLIER & _MASK) ^ word
    if length > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ (hashed >> 13)) * _MULTIPLIER & _MASK
    return hashed ^ (hashed >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key (BuiltInPartitioner.partitionForKey)."""
    return (murmur2(key) & _POSITIVE) % partition_count


def hashes_of(keys: pa.BinaryArray) -> Hashes:
    """Return `murmur2` of each key; that of a null key has no meaning."""
    bounds = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    first = int(bounds[0])
    starts, lengths = bounds[:-1] - first, np.diff(bounds)
    data = keys.buffers()[2]
    used = b"" if data is None else bytes(memoryview(data)[first : int(bounds[-1])])
    words = _words(used)
    multiplier = np.uint32(_MULTIPLIER)
    hashed = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    in_steps = np.minimum(lengths, _MAX_BYTES_IN_STEPS)
    active, step = np.flatnonzero(in_steps >= _WORD_BYTES), 0
    while len(active):
        word = words[starts[active] + step] * multiplier
        word = (word ^ (word >> np.uint32(24))) * multiplier
        hashed[active] = hashed[active] * multiplier ^ word
        step += _WORD_BYTES
        active = active[in_steps[active] >= step + _WORD_BYTES]
    left = lengths & 3
    tails = np.flatnonzero(left)
    masks = (np.uint32(1) << (left[tails] * 8).astype(np.uint32)) - np.uint32(1)
    last = words[(starts + (lengths & ~3))[tails]] & masks
    hashed[tails] = (hashed[tails] ^ last) * multiplier
    hashed = (hashed ^ (hashed >> np.uint32(13))) * multiplier
    hashed ^= hashed >> np.uint32(15)
    for index in np.flatnonzero(lengths > _MAX_BYTES_IN_STEPS).tolist():
        hashed[index] = murmur2(used[starts[index] : starts[index] + lengths[index]])
    return hashed


def _words(data: bytes) -> Hashes:
    """Return for each position the little-endian number of the four bytes from it on; behind the end are zeros."""
    padded = data + bytes(_WORD_BYTES)
    return np.ndarray(shape=(len(data) + 1,), dtype="<u4", buffer=padded, strides=(1,))


class Columns(NamedTuple):
    """The columns of records; topics and partitions have no null."""

    topics: pa.StringArray
    partitions: pa.Int32Array
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.ListArray | None


class Partitioner:
    """Chooses the partitions of the rows of one task, in their order."""

    def __init__(self, counts: Mapping[str, int], topic: str | None, start: int) -> None:
        """`counts`: the partitions of each topic. `topic`: that of all rows; None: the rows have a column. Null keys
        begin at the partition `start`."""
        self._counts = counts
        self._topic = topic
        self._start = start
        self._rows = 0

    def columns(self, batch: pa.RecordBatch) -> Columns:
        """Return the columns of rows with their partitions. Raise JobError for a row without a topic, and for a topic
        or a partition that does not exist."""
        found = {name: _usual(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
        count = batch.num_rows
        null = pa.nulls(count, pa.binary())
        keys, values = found.get("key", null), found["value"]
        if self._topic is not None:
            topics = pa.repeat(pa.scalar(self._topic, pa.string()), count)
            limits: Numbers | int = self._count_of(self._topic)
        else:
            topics = found["topic"]
            limits = self._limits(topics)
        chosen = self._chosen(keys) % limits
        if "partition" in found:
            chosen = self._given(found["partition"], chosen, topics, limits)
        return Columns(topics, pa.array(chosen.astype(np.int32)), keys, values, found.get("headers"))

    def _limits(self, topics: pa.StringArray) -> Numbers:
        """Return the number of partitions of each row's topic."""
        if topics.null_count:
            raise JobError(
                "a row has no topic: its column `topic` is null; give the option `topic`, or filter such rows"
            )
        names = topics.dictionary_encode()
        counts = np.array([self._count_of(name) for name in names.dictionary.to_pylist()], dtype=np.int64)
        limits: Numbers = counts[names.indices.to_numpy()]
        return limits

    def _count_of(self, topic: str) -> int:
        if topic not in self._counts:
            raise JobError(f"the topic {topic} does not exist; create it: gregor topics --create --topic {topic}")
        return self._counts[topic]

    def _chosen(self, keys: pa.BinaryArray) -> Numbers:
        """Return numbers whose remainders are the partitions."""
        count = len(keys)
        row_numbers = np.arange(self._rows, self._rows + count, dtype=np.int64)
        self._rows += count
        if keys.null_count == count:
            return self._start + row_numbers // STICKY_ROWS
        hashed = (hashes_of(keys) & np.uint32(_POSITIVE)).astype(np.int64)
        if not keys.null_count:
            return hashed
        return np.where(keys.is_null().to_numpy(zero_copy_only=False), self._start + row_numbers // STICKY_ROWS, hashed)

    def _given(
        self, partitions: pa.Int32Array, chosen: Numbers, topics: pa.StringArray, limits: Numbers | int
    ) -> Numbers:
        """Return the partitions that rows have in their column, where they have one."""
        if partitions.null_count == len(partitions):
            return chosen
        is_null = partitions.is_null().to_numpy(zero_copy_only=False)
        given = np.where(is_null, chosen, partitions.fill_null(0).to_numpy().astype(np.int64))
        wrong = np.flatnonzero((given < 0) | (given >= limits))
        if len(wrong):
            topic = topics[int(wrong[0])].as_py()
            raise JobError(
                f"a row has the partition {given[wrong[0]]}, but the partitions of {topic} are 0 to "
                f"{self._count_of(topic) - 1}: correct the column `partition`, or leave it null"
            )
        return given


def _usual(column: pa.Array) -> pa.Array:
    """Return a column with offsets of 32 bits: Spark's are larger with spark.sql.execution.arrow.useLargeVarTypes."""
    usual = _USUAL_TYPES.get(column.type)
    return column if usual is None else column.cast(usual)
