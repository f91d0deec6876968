"""Objects that only a collection can free are found."""

from __future__ import annotations

import gc

from gregor.storage.log.state import AppendLimits, LogHealth
from tests.support.cycles import left_in_cycles


def _leave(*, is_cycle: bool) -> None:
    reports: list[object] = []
    health = LogHealth("/data/t-0", "t-0", AppendLimits(), reports.append)
    if is_cycle:
        reports.append(health)


def test_cycles_are_found_and_nothing_else() -> None:
    assert left_in_cycles(lambda: _leave(is_cycle=False)) == set()
    assert left_in_cycles(lambda: _leave(is_cycle=True)) == {"AppendLimits", "LogHealth"}
    assert gc.isenabled()
    assert gc.garbage == []
