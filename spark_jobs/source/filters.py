"""Filters of a query on partition, offset and timestamp, as bounds of what is read.

The classes are those of pyspark.sql.datasource, distinguished by their names, so that this module needs no PySpark.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gregor.spark_jobs.arrow.plan import Filters, PartitionRange

_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_EQUAL = frozenset({"EqualTo", "EqualNullSafe"})
_BOUNDS = frozenset({*_EQUAL, "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"})


@dataclass(frozen=True)
class Pushed:
    """The rows that the filters leave; None is no filter."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    bounds: Filters = field(default_factory=Filters)
    min_partition: int = 0
    """Bounds of the number of a partition, inclusive."""
    max_partition: int = 2**31 - 1

    def within(self, ranges: Iterable[PartitionRange]) -> list[PartitionRange]:
        """Return the parts of the ranges that the filters on topic, partition and offset leave."""
        left = []
        for part in ranges:
            if self.topics is not None and part.topic not in self.topics:
                continue
            if self.partitions is not None and part.partition not in self.partitions:
                continue
            if not self.min_partition <= part.partition <= self.max_partition:
                continue
            start, end = part.start_offset, part.end_offset
            if self.bounds.min_offset is not None:
                start = max(start, self.bounds.min_offset)
            if self.bounds.max_offset is not None:
                end = min(end, self.bounds.max_offset + 1)
            if start < end:
                left.append(replace(part, start_offset=start, end_offset=end))
        return left


def push(filters: Sequence[Any]) -> tuple[Pushed, list[Any]]:
    """Return what the filters leave, and those that Spark must evaluate too: all but those on topic, partition and
    offset, and on null."""
    pushed = Pushed()
    left = []
    for one in filters:
        narrowed, exact = _narrowed(pushed, one)
        pushed = narrowed
        if not exact:
            left.append(one)
    return pushed, left


def _narrowed(pushed: Pushed, one: Any) -> tuple[Pushed, bool]:
    kind = type(one).__name__
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in _NEVER_NULL:
        return pushed, False
    column = attribute[0]
    if kind == "IsNotNull":
        return pushed, True
    if kind == "In":
        return _with_values(pushed, column, [value for value in one.value if value is not None])
    if kind in _EQUAL and column in ("topic", "partition"):
        return _with_values(pushed, column, [one.value])
    if kind not in _BOUNDS:
        return pushed, False
    if column == "timestamp":
        return _with_time(pushed, kind, one.value), False
    if column not in ("offset", "partition") or not _is_int(one.value):
        return pushed, False
    lowest, highest = _bounds(kind, one.value)
    if column == "partition":
        return replace(
            pushed,
            min_partition=_highest(pushed.min_partition, lowest) or 0,
            max_partition=_lowest(pushed.max_partition, highest) or 0,
        ), True
    bounds = pushed.bounds
    bounds = replace(
        bounds, min_offset=_highest(bounds.min_offset, lowest), max_offset=_lowest(bounds.max_offset, highest)
    )
    return replace(pushed, bounds=bounds), True


def _with_values(pushed: Pushed, column: str, values: Sequence[Any]) -> tuple[Pushed, bool]:
    if column == "topic" and all(isinstance(value, str) for value in values):
        found = frozenset(values)
        return replace(pushed, topics=found if pushed.topics is None else pushed.topics & found), True
    if column == "partition" and all(_is_int(value) for value in values):
        numbers = frozenset(values)
        return replace(pushed, partitions=numbers if pushed.partitions is None else pushed.partitions & numbers), True
    return pushed, False


def _with_time(pushed: Pushed, kind: str, value: Any) -> Pushed:
    """Return the bounds in whole milliseconds, which Spark makes exact."""
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return pushed
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    microseconds = (value - epoch) // datetime.timedelta(microseconds=1)
    bounds = pushed.bounds
    if kind in _EQUAL or kind.startswith("Greater"):
        bounds = replace(bounds, min_timestamp_ms=_highest(bounds.min_timestamp_ms, microseconds // 1000))
    if kind in _EQUAL or kind.startswith("Less"):
        bounds = replace(bounds, max_timestamp_ms=_lowest(bounds.max_timestamp_ms, math.ceil(microseconds / 1000)))
    return replace(pushed, bounds=bounds)


def _bounds(kind: str, value: int) -> tuple[int | None, int | None]:
    """Return the lowest and the highest value that the filter leaves."""
    if kind in _EQUAL:
        return value, value
    if kind.startswith("Greater"):
        return (value if kind.endswith("OrEqual") else value + 1), None
    return None, (value if kind.endswith("OrEqual") else value - 1)


def _highest(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _lowest(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
