"""Walks over batches, and runs of whole batches in a view, against the obvious way to find them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.protocol.records.batch import RecordBatch
from gregor.storage.segment.batches import BatchHeader, BatchWalk, Defect, runs_of_batches
from tests.storage.logs import batch, patched


@given(st.lists(st.integers(1, 3), max_size=12), st.integers(1, 4), st.integers(0, 70))
def test_runs(counts: list[int], max_batches: int, cut: int) -> None:
    batches = [bytes(batch(count)) for count in counts]
    data = b"".join(batches)[: max(0, sum(map(len, batches)) - cut)]
    runs = [bytes(run) for run in runs_of_batches(memoryview(data), max_batches)]
    assert b"".join(runs) == data
    for index, run in enumerate(runs[:-1]):
        assert run == b"".join(batches[index * max_batches : (index + 1) * max_batches])
    assert len(runs[-1]) <= max(max_batches * 61, max_batches * max(map(len, batches), default=0))


@given(st.binary(max_size=300), st.integers(1, 3))
def test_what_is_no_batch_is_left_to_who_writes_it(data: bytes, max_batches: int) -> None:
    runs = list(runs_of_batches(memoryview(data), max_batches))
    assert b"".join(runs) == data
    assert all(runs) or runs == [b""]


def walk_over(data: bytes, window_bytes: int = 1 << 20, **limits: Any) -> BatchWalk:
    return BatchWalk(
        lambda size_bytes, position: data[position : position + size_bytes],
        0,
        len(data),
        next_offset=limits.pop("next_offset", 0),
        window_bytes=window_bytes,
        **limits,
    )


def log_of(counts: list[int]) -> bytes:
    """Batches whose offsets ascend without gaps."""
    data, next_offset = b"", 0
    for count in counts:
        data += patched(batch(count, producer_id=count, producer_epoch=1, base_sequence=4), ">q", 0, next_offset)
        next_offset += count
    return data


@given(st.lists(st.integers(1, 3), max_size=8), st.integers(61, 400), st.booleans(), st.booleans())
def test_a_walk_shows_each_header_whatever_its_windows(
    counts: list[int], window_bytes: int, checks_crc: bool, is_whole: bool
) -> None:
    data = log_of(counts)
    walk = walk_over(data, window_bytes, checks_crc=checks_crc, is_whole=is_whole)
    position = 0
    for header in walk:
        expected = RecordBatch(data, position)
        assert (header.position, header.size_bytes) == (position, expected.size_bytes)
        for name in ("base_offset", "last_offset", "leader_epoch", "crc", "attributes", "base_timestamp",
                     "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "record_count"):  # fmt: skip
            assert getattr(header, name) == getattr(expected, name)
            assert getattr(BatchHeader.read(data, position), name) == getattr(expected, name)
        if checks_crc or is_whole:
            at = position - walk.window_position
            assert walk.window[at : at + header.size_bytes] == data[position : position + header.size_bytes]
        position += header.size_bytes
    assert position == walk.position == len(data)
    assert walk.defect is None


@pytest.mark.parametrize(
    ("change", "defect", "problem"),
    [
        ((">b", 16, 1), Defect.FORMAT, "format 1, not 2"),
        ((">i", 8, 48), Defect.FORMAT, "a length of 48"),
        ((">i", 23, -1), Defect.FORMAT, "a last offset delta of -1"),
        ((">q", 0, 1), Defect.OFFSETS, "base offset 1 where 2 is the least"),
        ((">q", 0, 1 << 40), Defect.OFFSETS, "is too far from the segment's 0"),
        ((">i", 8, 5000), Defect.INCOMPLETE, "a batch of 5012 bytes"),
        ((">I", 17, 1), Defect.CHECKSUM, "offsets 2 to 3 is wrong"),
    ],
)
def test_a_walk_says_why_it_ends(change: tuple[str, int, int], defect: Defect, problem: str) -> None:
    first = log_of([2])
    second = patched(patched(batch(2), ">q", 0, 2), *change)
    walk = walk_over(first + second, highest_offset=2**31 - 1)
    assert [header.last_offset for header in walk] == [1]
    assert (walk.position, walk.defect) == (len(first), defect)
    assert problem in walk.problem


def test_less_than_a_header_is_no_defect() -> None:
    walk = walk_over(log_of([2]) + bytes(60))
    assert len(list(walk)) == 1
    assert walk.defect is None
    assert walk.position == len(log_of([2]))
