"""Tests of which some run each day: the mark by_day, the days, and the list of those that another day runs.

by_day(COUNT)                     so many of the tests of the file that have this mark
by_day(COUNT, parameter="client") the tests of so many values of this parameter; a test without it always runs
by_day(COUNT, group="benchmarks") so many of the tests of this group, which may lie in several files
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from tests.support.sampling import of_the_day


class Mark(Protocol):
    @property
    def args(self) -> tuple[int, ...]: ...

    @property
    def kwargs(self) -> dict[str, str]: ...


class Marked(NamedTuple):
    """A test that has the mark, with the values of its parameters."""

    node_id: str
    mark: Mark
    parameters: dict[str, object]


def left_out(tests: Iterable[Marked], day: datetime.date) -> set[str]:
    """Return the node ids of the tests that other days run."""
    groups: dict[str, dict[object, list[str]]] = {}
    counts: dict[str, int] = {}
    for test in tests:
        group = test.mark.kwargs.get("group") or test.node_id.partition("::")[0]
        parameter = test.mark.kwargs.get("parameter")
        if parameter is None or parameter in test.parameters:
            unit = test.node_id if parameter is None else test.parameters[parameter]
            groups.setdefault(group, {}).setdefault(unit, []).append(test.node_id)
            counts[group] = test.mark.args[0]
    found: set[str] = set()
    for group, units in groups.items():
        kept = of_the_day(list(units), min(counts[group], len(units)), day)
        found.update(node_id for unit, node_ids in units.items() if unit not in kept for node_id in node_ids)
    return found
