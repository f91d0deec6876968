"""Long work in short pieces, under a clock turned by hand; turns of the loop are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest

from gregor.broker.jobs import turns
from gregor.broker.jobs.turns import TURN_S, Gate

STEPS = 100


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(turns.time, "monotonic", lambda: self.now_s)

    def steps(self, step_s: float, worked: Callable[[], None] = lambda: None) -> Generator[None, None, str]:
        for _ in range(STEPS):
            self.now_s += step_s
            worked()
            yield
        return "done"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def turns_until_done(work: Awaitable[Any]) -> int:
    task = asyncio.ensure_future(work)
    taken = 0
    while not task.done():
        taken += 1
        await asyncio.sleep(0)
    task.result()
    return taken


def test_what_fits_a_turn_is_done_at_once(clock: Clock) -> None:
    assert Gate().take(clock.steps(TURN_S / STEPS / 2)) == "done"


def test_what_does_not_gives_others_turns(clock: Clock) -> None:
    async def run() -> int:
        work = Gate().take(clock.steps(TURN_S * 0.4))
        assert isinstance(work, Awaitable)
        assert clock.now_s < 2 * TURN_S
        return await turns_until_done(work)

    assert asyncio.run(run()) >= STEPS / 3


def test_one_of_many_goes_on_in_each_turn(clock: Clock) -> None:
    async def run() -> None:
        gate = Gate()
        worked = [0] * 5
        in_this_turn = 0

        def work(number: int) -> None:
            nonlocal in_this_turn
            worked[number] += 1
            in_this_turn += 1

        def stepping(number: int) -> Awaitable[str] | str:
            return gate.take(clock.steps(TURN_S * 2, lambda: work(number)))

        tasks = [asyncio.ensure_future(stepping(number)) for number in range(5)]  # type: ignore[arg-type]
        in_this_turn = 0
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            assert in_this_turn <= 1
            assert max(worked) - min(worked) <= 1 or max(worked) == STEPS
            in_this_turn = 0
        assert [task.result() for task in tasks] == ["done"] * 5

    asyncio.run(run())


def test_a_coroutine_of_many_steps_gives_others_turns(clock: Clock) -> None:
    async def work(gate: Gate) -> None:
        between = gate.turns()
        for _ in range(STEPS):
            await between.next()
            clock.now_s += TURN_S * 2

    async def run() -> int:
        return await turns_until_done(work(Gate()))

    assert asyncio.run(run()) >= STEPS - 1


def test_one_who_left_does_not_keep_the_others_waiting(clock: Clock) -> None:
    async def run() -> str:
        gate = Gate()
        works = [asyncio.ensure_future(gate.take(clock.steps(TURN_S * 2))) for _ in range(3)]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        works[0].cancel()
        works[1].cancel()
        return await asyncio.wait_for(works[2], 30)

    assert asyncio.run(run()) == "done"


def test_an_error_comes_out_early_and_late(clock: Clock) -> None:
    def failing(after: int) -> Generator[None, None, None]:
        for _ in range(after):
            clock.now_s += TURN_S * 2
            yield
        raise ValueError("no")

    async def run() -> None:
        with pytest.raises(ValueError, match="no"):
            Gate().take(failing(0))
        work = Gate().take(failing(3))
        assert isinstance(work, Awaitable)
        with pytest.raises(ValueError, match="no"):
            await work

    asyncio.run(run())
