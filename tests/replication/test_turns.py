"""Long work with turns for others, under a clock turned by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from gregor.replication import turns


@pytest.mark.parametrize(("step_s", "turns_wanted"), [(0.0, 0), (turns.TURN_S / 10, 9), (turns.TURN_S * 2, 100)])
def test_others_get_a_turn(monkeypatch: pytest.MonkeyPatch, step_s: float, turns_wanted: int) -> None:
    now_s = 0.0
    monkeypatch.setattr(turns.time, "monotonic", lambda: now_s)

    def steps() -> Generator[None, None, str]:
        nonlocal now_s
        for _ in range(100):
            now_s += step_s
            yield
        return "done"

    async def run() -> int:
        count = 0
        work = asyncio.ensure_future(turns.in_turns(steps()))
        await asyncio.sleep(0)
        while not work.done():
            count += 1
            await asyncio.sleep(0)
        assert work.result() == "done"
        return count

    assert abs(asyncio.run(run()) - turns_wanted) <= 1


@pytest.mark.parametrize(("step_s", "turns_wanted"), [(0.0, 0), (turns.TURN_S * 2, 1)])
def test_after_long_work_others_have_a_turn_before_the_caller_goes_on(
    monkeypatch: pytest.MonkeyPatch, step_s: float, turns_wanted: int
) -> None:
    now_s = 0.0
    monkeypatch.setattr(turns.time, "monotonic", lambda: now_s)
    taken_at_end = taken = 0

    def steps() -> Generator[None, None, None]:
        nonlocal now_s, taken_at_end
        for _ in range(5):
            now_s += step_s
            yield
        taken_at_end = taken

    async def run() -> int:
        nonlocal taken
        work = asyncio.ensure_future(turns.in_turns(steps()))
        while not work.done():
            await asyncio.sleep(0)
            taken += 1
        return taken - taken_at_end

    assert asyncio.run(run()) - 1 == turns_wanted
