"""gregor.spark_jobs.source.filters: bounds of what is read. The classes resemble those of pyspark.sql.datasource."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import pytest

from gregor.spark_jobs.arrow.plan import PartitionRange
from gregor.spark_jobs.source.filters import push

RANGES = [PartitionRange("t", number, 0, 100) for number in range(4)] + [PartitionRange("u", 0, 50, 60)]


@dataclass
class _Filter:
    attribute: tuple[str, ...]
    value: Any = None


class EqualTo(_Filter): ...


class EqualNullSafe(_Filter): ...


class GreaterThan(_Filter): ...


class GreaterThanOrEqual(_Filter): ...


class LessThan(_Filter): ...


class LessThanOrEqual(_Filter): ...


class In(_Filter): ...


class IsNotNull(_Filter): ...


class IsNull(_Filter): ...


class Not(_Filter): ...


def left(*filters: _Filter) -> list[tuple[str, int, int, int]]:
    pushed, others = push(filters)
    assert others == []
    return [(part.topic, part.partition, part.start_offset, part.end_offset) for part in pushed.within(RANGES)]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("partition",), 2)], [("t", 2, 0, 100)]),
        ([EqualNullSafe(("partition",), 2), GreaterThan(("offset",), 89)], [("t", 2, 90, 100)]),
        ([In(("partition",), (1, 3, None)), LessThan(("partition",), 3)], [("t", 1, 0, 100)]),
        ([GreaterThanOrEqual(("partition",), 3), LessThanOrEqual(("offset",), 4)], [("t", 3, 0, 5)]),
        ([EqualTo(("offset",), 55), EqualTo(("topic",), "u")], [("u", 0, 55, 56)]),
        ([In(("topic",), ("u",)), IsNotNull(("offset",))], [("u", 0, 50, 60)]),
        ([LessThan(("offset",), 50), In(("topic",), ("u", "v"))], []),
        ([GreaterThan(("offset",), 5), GreaterThan(("offset",), 97), EqualTo(("partition",), 0)], [
            ("t", 0, 98, 100)
        ]),
        ([In(("partition",), (0, 1)), In(("partition",), (1, 2))], [("t", 1, 0, 100)]),
    ],
)  # fmt: skip
def test_bounds(filters: list[_Filter], expected: list[tuple[str, int, int, int]]) -> None:
    assert left(*filters) == expected


@pytest.mark.parametrize(
    "other",
    [
        EqualTo(("value",), b"x"),
        EqualTo(("partition",), "1"),
        EqualTo(("partition",), None),
        GreaterThan(("offset",), True),
        IsNull(("offset",)),
        IsNotNull(("key",)),
        Not(("offset",)),
        EqualTo(("headers", "key"), 1),
        GreaterThan(("timestampType",), 0),
    ],
)
def test_other_filters_are_left_to_spark(other: _Filter) -> None:
    pushed, others = push([other])
    assert others == [other]
    assert len(pushed.within(RANGES)) == len(RANGES)


def test_times_are_rounded_outwards_and_left_to_spark_as_well() -> None:
    at = datetime.datetime(1970, 1, 1, 0, 0, 1, 500, tzinfo=datetime.UTC)
    filters = [GreaterThan(("timestamp",), at), LessThanOrEqual(("timestamp",), at)]
    pushed, others = push(filters)
    assert others == filters
    assert (pushed.bounds.min_timestamp_ms, pushed.bounds.max_timestamp_ms) == (1000, 1001)
    naive = GreaterThan(("timestamp",), at.replace(tzinfo=None))
    assert push([naive])[0].bounds.min_timestamp_ms is None
    before = EqualTo(("timestamp",), datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC))
    bounds = push([before])[0].bounds
    assert (bounds.min_timestamp_ms, bounds.max_timestamp_ms) == (-1, 0)
