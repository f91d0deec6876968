"""Loads of several sides in turns, forth and back (A B C C B A), with the processor time of Spark's processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from tests.bench.compare import Values
from tests.bench.spark.processes import processor_s

Load = Callable[[], int]
"""Runs one side once; returns the number of its records."""


class Cost(NamedTuple):
    """The records that a side has had in one round, their time, and the processor time for them."""

    records: int = 0
    seconds: float = 0.0
    processor_s: float = 0.0

    def plus(self, records: int, seconds: float, processor_s: float) -> Cost:
        return Cost(self.records + records, self.seconds + seconds, self.processor_s + processor_s)

    @property
    def thousands_per_s(self) -> float:
        return self.records / self.seconds / 1000

    @property
    def thousands_per_core(self) -> float:
        """Thousands of records for each second of a core."""
        return self.records / max(self.processor_s, 1e-9) / 1000


def run_turns(name: str, sides: Mapping[str, Load], rounds: int, without: Collection[int]) -> dict[str, list[Cost]]:
    """Run each side twice in each round; the first round of all is not counted. `without`: processes of others."""
    found: dict[str, list[Cost]] = {side: [] for side in sides}
    for number in range(rounds + 1):
        costs = dict.fromkeys(sides, Cost())
        for side in [*sides, *reversed(sides)]:
            before_s, began = processor_s(without), time.monotonic()
            records = sides[side]()
            spent_s = time.monotonic() - began, processor_s(without) - before_s
            costs[side] = costs[side].plus(records, *spent_s)
            told = "warm-up" if not number else f"round {number}"
            print(f"# {told}, {name}, {side}: {records} records, {spent_s[0]:.2f} s, {spent_s[1]:.2f} s of cores")
        if number:
            for side, cost in costs.items():
                found[side].append(cost)
    return found


def compared(name: str, ours: list[Cost], theirs: list[Cost]) -> list[Values]:
    """Return the figures of two sides: records for each second, and for each second of a core."""
    return [
        Values(
            f"{name}, 1000/s",
            True,
            [one.thousands_per_s for one in ours],
            [one.thousands_per_s for one in theirs],
        ),
        Values(
            f"{name}, 1000/s and core",
            True,
            [one.thousands_per_core for one in ours],
            [one.thousands_per_core for one in theirs],
        ),
    ]
