"""Long work in turns, under a clock turned by hand; turns of the loop are counted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from gregor.broker.jobs.turns import LoopGate, TurnQueue
from gregor.protocol.turns import TURN_S, Steps

STEPS = 100


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def steps(self, step_s: float, worked: Callable[[], None] = lambda: None) -> Generator[None, None, str]:
        for _ in range(STEPS):
            self.now_s += step_s
            worked()
            yield
        return "done"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gate(clock: Clock) -> LoopGate:
    return LoopGate(clock)


async def turns_until_done(work: Awaitable[Any]) -> int:
    task = asyncio.ensure_future(work)
    taken = 0
    while not task.done():
        taken += 1
        await asyncio.sleep(0)
    task.result()
    return taken


def test_what_fits_a_turn_is_done_at_once(clock: Clock, gate: LoopGate) -> None:
    assert gate.start(clock.steps(TURN_S / STEPS / 2)) == "done"


def test_what_does_not_gives_others_turns(clock: Clock, gate: LoopGate) -> None:
    async def run() -> int:
        work = gate.start(clock.steps(TURN_S * 0.4))
        assert isinstance(work, Awaitable)
        assert clock.now_s < 2 * TURN_S
        return await turns_until_done(work)

    assert asyncio.run(run()) >= STEPS / 3


def test_one_of_many_goes_on_in_each_turn(clock: Clock, gate: LoopGate) -> None:
    async def run() -> None:
        worked = [0] * 5
        in_this_turn = 0

        def work(number: int) -> None:
            nonlocal in_this_turn
            worked[number] += 1
            in_this_turn += 1

        def stepping(number: int) -> Awaitable[str] | str:
            return gate.start(clock.steps(TURN_S * 2, lambda: work(number)))

        tasks = [asyncio.ensure_future(stepping(number)) for number in range(5)]  # type: ignore[arg-type]
        in_this_turn = 0
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            assert in_this_turn <= 1
            assert max(worked) - min(worked) <= 1 or max(worked) == STEPS
            in_this_turn = 0
        assert [task.result() for task in tasks] == ["done"] * 5

    asyncio.run(run())


def test_many_that_begin_together_begin_one_after_the_other(clock: Clock, gate: LoopGate) -> None:
    async def run() -> None:
        in_this_turn = 0

        def work() -> None:
            nonlocal in_this_turn
            in_this_turn += 1

        tasks = [asyncio.ensure_future(gate.run(clock.steps(TURN_S * 2, work))) for _ in range(5)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            assert in_this_turn <= 1
            in_this_turn = 0

    asyncio.run(run())


def test_many_short_works_that_begin_together_share_out_the_turns(clock: Clock, gate: LoopGate) -> None:
    async def run() -> None:
        in_this_turn = 0

        def work() -> None:
            nonlocal in_this_turn
            in_this_turn += 1

        tasks = [asyncio.ensure_future(gate.run(clock.steps(TURN_S / STEPS / 2, work))) for _ in range(5)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            assert in_this_turn <= STEPS
            in_this_turn = 0

    asyncio.run(run())


@pytest.mark.parametrize(("step_s", "turns_wanted"), [(0.0, 0), (TURN_S / 10, 9), (TURN_S * 2, STEPS)])
def test_the_clock_says_how_many_steps_make_a_turn(
    clock: Clock, gate: LoopGate, step_s: float, turns_wanted: int
) -> None:
    taken = asyncio.run(turns_until_done(gate.run(clock.steps(step_s))))
    assert abs(taken - turns_wanted) <= 4


@pytest.mark.parametrize(("step_s", "long"), [(0.0, False), (TURN_S * 2, True)])
def test_after_long_work_others_have_a_turn_before_the_caller_goes_on(
    clock: Clock, gate: LoopGate, step_s: float, long: bool
) -> None:
    taken_at_end = taken = 0

    def worked() -> None:
        nonlocal taken_at_end
        taken_at_end = taken

    async def run() -> int:
        nonlocal taken
        work = asyncio.ensure_future(gate.run(clock.steps(step_s, worked)))
        while not work.done():
            await asyncio.sleep(0)
            taken += 1
        return taken - taken_at_end - 1

    assert (asyncio.run(run()) >= 1) is long


def test_a_coroutine_of_many_steps_gives_others_turns(clock: Clock, gate: LoopGate) -> None:
    async def work() -> None:
        between = gate.turns()
        for _ in range(STEPS):
            await between.next()
            clock.now_s += TURN_S * 2

    assert asyncio.run(turns_until_done(work())) >= STEPS - 1


def test_one_who_left_does_not_keep_the_others_waiting(clock: Clock, gate: LoopGate) -> None:
    async def run() -> str:
        works = [asyncio.ensure_future(gate.start(clock.steps(TURN_S * 2))) for _ in range(3)]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        works[0].cancel()
        works[1].cancel()
        return await asyncio.wait_for(works[2], 30)

    assert asyncio.run(run()) == "done"


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_cancelling_the_caller_closes_the_steps(clock: Clock, gate: LoopGate, turns: int) -> None:
    closed = []

    def steps() -> Steps[None]:
        try:
            yield from clock.steps(TURN_S * 2)
        finally:
            closed.append(True)

    async def run() -> None:
        work = steps()
        next(work)
        task = asyncio.ensure_future(gate.run(work))
        other = asyncio.ensure_future(gate.run(clock.steps(TURN_S * 2)))
        await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert closed == [True]
        assert await other == "done"

    asyncio.run(run())


def test_calls_run_on_threads_and_what_comes_of_them_goes_back(gate: LoopGate) -> None:
    def fail() -> None:
        raise OSError("no luck")

    def work() -> Steps[tuple[str, str]]:
        name = yield lambda: threading.current_thread().name
        try:
            yield fail
        except OSError as error:
            return name, str(error)
        return name, "no error"

    async def run() -> tuple[str, str]:
        with ThreadPoolExecutor(1, "codecs") as threads:
            return await gate.run(work(), threads)

    name, error = asyncio.run(run())
    assert name.startswith("codecs") and error == "no luck"


def test_an_error_comes_out_early_and_late(clock: Clock, gate: LoopGate) -> None:
    def failing(after: int) -> Generator[None, None, None]:
        for _ in range(after):
            clock.now_s += TURN_S * 2
            yield
        raise ValueError("no")

    async def run() -> None:
        with pytest.raises(ValueError, match="no"):
            gate.start(failing(0))
        work = gate.start(failing(3))
        assert isinstance(work, Awaitable)
        with pytest.raises(ValueError, match="no"):
            await work

    asyncio.run(run())


def test_a_queue_serves_in_order_and_as_many_as_fit_a_turn(clock: Clock, gate: LoopGate) -> None:
    served: list[int] = []

    def serve(number: int) -> None:
        clock.now_s += TURN_S * 0.4
        served.append(number)

    async def run() -> list[int]:
        loop = asyncio.get_running_loop()
        queue = TurnQueue(loop, gate, loop.create_task)
        for number in range(STEPS):
            queue.add(partial(serve, number))
        assert not served
        counts = []
        while queue.waiting:
            await asyncio.sleep(0)
            counts.append(len(served))
        return counts

    counts = asyncio.run(run())
    assert counts[0] == 4, "a single one is done without a clock"
    assert max(after - before for before, after in pairwise(counts)) == 3
    assert served == list(range(STEPS))


def test_a_queue_survives_work_that_fails_and_serves_what_comes_meanwhile_behind(
    gate: LoopGate, caplog: pytest.LogCaptureFixture
) -> None:
    served: list[int] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        queue = TurnQueue(loop, gate, loop.create_task)

        def fail() -> None:
            assert queue.waiting
            queue.add(lambda: served.append(2))
            raise RuntimeError("a bug")

        queue.add(fail)
        queue.add(lambda: served.append(1))
        await asyncio.sleep(0)
        queue.add(lambda: served.append(3))
        await asyncio.sleep(0)

    asyncio.run(run())
    assert served == [1, 2, 3]
    assert "a bug" in caplog.text
