"""records.entries: the short way finds what the general parser of records finds, for sound and for broken batches."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gregor.protocol.records.batch import (
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    CorruptBatch,
    RecordBatch,
    build_batch,
)
from gregor.protocol.records.entries import entries_of, plain_entries

LAST_OFFSET_DELTA_AT = 23
_SIZES = st.sampled_from([0, 1, 5, 31, 32, 63, 64, 100, 4000, 8190, 8192, 20_000])
_FIELDS = st.one_of(st.none(), st.binary(max_size=70), _SIZES.map(bytes), _SIZES.map(lambda size: b"\xff" * size))


def of_records(batch: RecordBatch) -> tuple[list[Any], bool]:
    """The entries by the general parser, and whether it found an error behind them."""
    found: list[Any] = []
    try:
        for record in batch.records():
            found.append((record.offset, record.key, record.value))
    except CorruptBatch:
        return found, True
    return found, False


def of_entries(batch: RecordBatch) -> tuple[list[Any], bool]:
    found: list[Any] = []
    try:
        for entry in entries_of(batch):
            found.append(entry)
    except CorruptBatch:
        return found, True
    return found, False


@given(st.lists(st.tuples(_FIELDS, _FIELDS), min_size=1, max_size=70), st.sampled_from([0, 1, 2**40]))
def test_entries_are_those_of_the_records(records: list[tuple[bytes | None, bytes | None]], base_offset: int) -> None:
    batch = RecordBatch(build_batch(records, timestamp_ms=5, base_offset=base_offset))
    assert of_entries(batch) == ([(base_offset + n, *record) for n, record in enumerate(records)], False)


@given(
    st.lists(st.tuples(st.binary(max_size=90), st.one_of(st.none(), st.binary(max_size=90))), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=3),
    st.integers(-1, 1),
    st.sampled_from([0, 3, 2**63 - 3, 2**63 - 1, -1]),
)
@example([(b"k", b"v")], [(0, 0x81)], 0, 0)
def test_broken_records_are_found_as_before(
    records: list[tuple[bytes, bytes | None]], changes: list[tuple[int, int]], more: int, base_offset: int
) -> None:
    data = build_batch(records, timestamp_ms=5)
    body_bytes = len(data) - RECORD_BATCH_OVERHEAD
    for position, byte in changes:
        data[RECORD_BATCH_OVERHEAD + position % body_bytes] = byte
    batch = RecordBatch(data)
    batch.record_count += more
    batch.base_offset = base_offset
    assert of_entries(batch) == of_records(batch)


def test_usual_records_are_parsed_the_short_way() -> None:
    records = [(b"k" * 40, b"v" * 200), (b"k", None), (b"", b"")]
    data = bytes(build_batch(records, timestamp_ms=5, base_offset=7))
    assert plain_entries(data, 0) == (len(data), 10, [(7, *records[0]), (8, *records[1]), (9, *records[2])])


def test_plain_batches_are_found_one_behind_the_other() -> None:
    first = build_batch([(b"k", b"v"), (b"k2", None)], timestamp_ms=5, base_offset=7)
    # Compaction has removed its last record.
    second = build_batch([(b"k3", b"v3")], timestamp_ms=5, base_offset=12)
    struct.pack_into(">i", second, LAST_OFFSET_DELTA_AT, 2)
    data = bytes(first + second)
    assert plain_entries(data, 0) == (len(first), 9, [(7, b"k", b"v"), (8, b"k2", None)])
    assert plain_entries(data, len(first)) == (len(second), 15, [(12, b"k3", b"v3")])
    assert plain_entries(data, len(data)) is None
    assert plain_entries(data[:-1], len(first)) is None
    assert plain_entries(data[: len(first) + 20], len(first)) is None


@given(st.integers(0, 3), st.binary(max_size=30))
def test_records_that_reach_into_the_next_batch_are_not_read(beyond: int, rest: bytes) -> None:
    batch = build_batch([(b"k", b"v"), (b"k2", b"v2")], timestamp_ms=5)
    size_bytes = len(batch)
    struct.pack_into(">i", batch, LENGTH_AT, size_bytes - LOG_OVERHEAD - beyond)
    assert (plain_entries(bytes(batch) + rest, 0) is not None) == (not beyond)


@pytest.mark.parametrize(
    "fields",
    [
        {"compression": 3},
        {"transactional": True, "producer_id": 4, "producer_epoch": 0},
        {"control": True, "producer_id": 4, "producer_epoch": 0},
        {"base_offset": 2**63 - 1},
    ],
)
def test_other_batches_are_not_plain(fields: dict[str, Any]) -> None:
    assert plain_entries(bytes(build_batch([(b"k", b"v")], timestamp_ms=5, **fields)), 0) is None


def test_batches_with_other_records_or_another_magic_are_not_plain() -> None:
    assert plain_entries(bytes(build_batch([(None, b"v")], timestamp_ms=5)), 0) is None
    batch = build_batch([(b"k", b"v")], timestamp_ms=5)
    batch[MAGIC_AT] = 1
    assert plain_entries(bytes(batch), 0) is None


@given(st.integers(-70, 200))
def test_a_wrong_length_is_not_read_beyond_the_end(length: int) -> None:
    batch = build_batch([(b"k", b"v")], timestamp_ms=5)
    right = len(batch) - LOG_OVERHEAD
    struct.pack_into(">i", batch, LENGTH_AT, length)
    assert (plain_entries(bytes(batch), 0) is not None) == (length == right)
