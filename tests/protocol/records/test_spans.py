"""protocol.records.spans beside protocol.records.batch, which reads everything, and on bytes that are no records."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.records.batch import RECORD_BATCH_OVERHEAD, CorruptBatch, Record, RecordBatch, build_batch
from gregor.protocol.records.scan import HeadStream, record_heads
from gregor.protocol.records.spans import record_spans, varint, with_timestamp_delta

fields = st.none() | st.binary(max_size=200)
records = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(-1, 2**40),
        fields,
        fields,
        st.lists(st.tuples(st.text(max_size=3), fields), max_size=2),
    ),
    min_size=1,
    max_size=20,
)


def made(given_records: list) -> RecordBatch:  # type: ignore[type-arg]
    offset, listed = 100, []
    for step, timestamp, key, value, headers in given_records:
        listed.append(Record(offset, timestamp, key, value, headers))
        offset += step
    return RecordBatch(build_batch(listed))


def plain(batch: RecordBatch) -> bytes:
    return bytes(batch.memory()[RECORD_BATCH_OVERHEAD:])


@settings(max_examples=25, deadline=None)
@given(records)
def test_spans_say_what_the_records_say(given_records: list) -> None:  # type: ignore[type-arg]
    batch = made(given_records)
    data = plain(batch)
    spans = record_spans(data, batch.record_count)
    expected = list(batch.records())
    assert [(batch.base_offset + span[4], batch.base_timestamp + span[3], span[5], span[6]) for span in spans] == [
        (record.offset, record.timestamp, record.key, record.value is not None) for record in expected
    ]
    assert spans[0][0] == 0
    assert spans[-1][1] == len(data)
    assert all(one[1] == other[0] for one, other in pairwise(spans))


@settings(max_examples=25, deadline=None)
@given(records, st.integers(-(2**63), 2**63 - 1))
def test_another_timestamp_changes_nothing_else(given_records: list, delta: int) -> None:  # type: ignore[type-arg]
    batch = made(given_records)
    data = plain(batch)
    for span in record_spans(data, batch.record_count):
        changed = with_timestamp_delta(data, span, delta)
        (other,) = record_spans(changed, 1)
        assert other[3:] == (delta, *span[4:])
        assert changed[other[2] :] == data[span[2] : span[1]]
        assert with_timestamp_delta(changed, other, span[3]) == data[span[0] : span[1]]


@given(st.binary(max_size=60), st.integers(0, 5))
def test_other_bytes_are_corrupt_or_records(data: bytes, count: int) -> None:
    try:
        spans = record_spans(data, count)
    except CorruptBatch:
        return
    assert len(spans) == count


@settings(max_examples=25, deadline=None)
@given(records, st.data())
def test_what_is_cut_off_is_corrupt(given_records: list, data: st.DataObject) -> None:  # type: ignore[type-arg]
    batch = made(given_records)
    whole = plain(batch)
    with pytest.raises(CorruptBatch):
        record_spans(whole[: data.draw(st.integers(0, len(whole) - 1))], batch.record_count)
    with pytest.raises(CorruptBatch, match="follow"):
        record_spans(whole + b"\0", batch.record_count)


def streamed(data: bytes, count: int, piece_bytes: int = 1) -> list[tuple[int, int]]:
    stream, heads = HeadStream(count), []
    for start in range(0, len(data), piece_bytes):
        heads += stream.heads(data[start : start + piece_bytes])
    return [*heads, *stream.heads(b"", is_last=True)]


@settings(max_examples=25, deadline=None)
@given(records, st.integers(1, 300))
def test_heads_of_pieces_are_those_of_the_whole(given_records: list[Any], piece_bytes: int) -> None:
    batch = made(given_records)
    data, count = plain(batch), batch.record_count
    assert streamed(data, count, piece_bytes) == [head[:2] for head in record_heads(data, count)]
    for broken, wrong in ((data[:-1], count), (data + b"\0", count), (data, count + 1), (data, count - 1)):
        with pytest.raises(CorruptBatch):
            streamed(broken, wrong, piece_bytes)


@given(st.binary(max_size=60), st.integers(0, 5), st.integers(1, 70))
def test_pieces_of_other_bytes_are_corrupt_where_the_whole_is(data: bytes, count: int, piece_bytes: int) -> None:
    try:
        heads = [head[:2] for head in record_heads(data, count)]
    except CorruptBatch:
        with pytest.raises(CorruptBatch):
            streamed(data, count, piece_bytes)
    else:
        assert streamed(data, count, piece_bytes) == heads


def test_a_long_record_is_not_kept() -> None:
    data = plain(RecordBatch(build_batch([(b"k", bytes(100_000)), (b"k", b"")])))
    stream = HeadStream(2)
    assert list(stream.heads(data[:5000])) == [(0, 0)]
    assert list(stream.heads(data[5000:99_000])) == []
    assert [*stream.heads(data[99_000:]), *stream.heads(b"", is_last=True)] == [(0, 1)]


@pytest.mark.parametrize("read", [record_spans, lambda data, count: list(record_heads(data, count)), streamed])
def test_a_count_below_zero_is_corrupt(read: Callable[[bytes, int], Any]) -> None:
    assert read(b"", 0) == []
    with pytest.raises(CorruptBatch, match="count of -1"):
        read(b"", -1)


def test_varints_are_zigzag() -> None:
    assert [varint(value) for value in (0, -1, 1, 63, -64, 64)] == [b"\0", b"\1", b"\2", b"\x7e", b"\x7f", b"\x80\1"]
    assert varint(2**64 - 1) == varint(-1)
    assert varint(2**64) == varint(0)
    assert len(varint(2**63 - 1)) == len(varint(-(2**63))) == 10
