"""gregor.spark_jobs.source.planning: what each task reads. The expected pieces are those of Spark's connector."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.spark_jobs.arrow.plan import PartitionRange
from gregor.spark_jobs.source.planning import divide


def ranges(*sizes: int) -> list[PartitionRange]:
    return [PartitionRange("t", number, 10, 10 + size) for number, size in enumerate(sizes)]


def pieces(divided: list[PartitionRange]) -> list[tuple[int, int, int]]:
    return [(part.partition, part.start_offset, part.end_offset) for part in divided]


def test_one_task_a_partition_and_none_for_an_empty_one() -> None:
    assert pieces(divide(ranges(5, 0, -3, 7), None, None)) == [(0, 10, 15), (3, 10, 17)]
    assert pieces(divide(ranges(5, 7), 2, None)) == [(0, 10, 15), (1, 10, 17)]


@pytest.mark.parametrize(
    ("sizes", "min_partitions", "expected"),
    [
        ((1, 9999), 10, [1, 1111, 1111, 1111, 1111, 1111, 1111, 1111, 1111, 1111]),
        ((100,), 3, [33, 33, 34]),
        ((2, 1), 5, [1, 1, 1]),  # a piece without an offset is left out
        ((1000, 1000, 1), 5, [500, 500, 500, 500, 1]),
    ],
)
def test_large_partitions_are_divided_in_proportion(
    sizes: tuple[int, ...], min_partitions: int, expected: list[int]
) -> None:
    divided = divide(ranges(*sizes), min_partitions, None)
    assert [part.end_offset - part.start_offset for part in divided] == expected


def test_pieces_have_at_most_so_many_records() -> None:
    assert pieces(divide(ranges(10, 4), None, 4)) == [(0, 10, 13), (0, 13, 16), (0, 16, 20), (1, 10, 14)]


def test_both_limits() -> None:
    assert len(divide(ranges(100), 3, 10)) == 10
    assert len(divide(ranges(100), 20, 50)) == 20


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 500), max_size=8),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 300),
)
def test_nothing_is_lost_or_read_twice(sizes: list[int], minimum: int | None, most: int | None) -> None:
    divided = divide(ranges(*sizes), minimum, most)
    if most is not None:
        assert all(part.end_offset - part.start_offset <= most for part in divided)
    for number, size in enumerate(sizes):
        own = [part for part in divided if part.partition == number]
        ends = [10, *(part.end_offset for part in own)]
        assert [part.start_offset for part in own] == ends[:-1]
        assert ends[-1] == 10 + size
