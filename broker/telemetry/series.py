"""The present values of one client instance: those of its last push, and sums of its differences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gregor.broker.telemetry.otlp import Point

Key = tuple[str, tuple[tuple[str, str], ...]]
"""The name of a metric, and its attributes."""


class Value(NamedTuple):
    """The value of a series."""

    value: float
    is_counter: bool
    is_delta: bool


class ClientSeries:
    """A gauge or a cumulative counter that a push does not repeat is gone; a sum of differences stays."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[Key, Value] = {}

    def __len__(self) -> int:
        return len(self._values)

    def items(self) -> Iterator[tuple[Key, Value]]:
        return iter(list(self._values.items()))

    def push(self, points: Sequence[Point], max_series: int) -> int:
        """Apply a push; return how many of its series had no room."""
        before = self._values
        self._values = {key: value for key, value in before.items() if value.is_delta}
        refused = 0
        for point in points:
            if not math.isfinite(point.value):
                continue  # as Java clients send for averages of nothing
            key = point.name, point.attributes
            if key not in self._values and len(self._values) >= max_series:
                refused += 1
                continue
            base = before.get(key)
            sum_before = base.value if point.is_delta and base is not None and base.is_delta else 0
            self._values[key] = Value(sum_before + point.value, point.is_counter, point.is_delta)
        return refused
