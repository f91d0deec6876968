"""Timers over an event loop, beside a twin that re-arms every time."""

import heapq
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.coordinator.result import Result
from gregor.coordinator.timers import MAX_AT_ONCE, LoopTimers


class Handle:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class CrankedLoop:
    """An event loop whose time passes only in `turn`."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.armed = 0
        self._calls: list[tuple[float, int, Handle, Callable[..., object], Any]] = []
        self._soon: list[Callable[..., object]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Handle:
        handle = Handle()
        self.armed += 1
        heapq.heappush(self._calls, (when, self.armed, handle, callback, args))
        return handle

    def call_soon(self, callback: Callable[..., object]) -> None:
        self._soon.append(callback)

    def turn(self, ms: int) -> None:
        """Run the calls that are due in this time, as in one turn of the loop."""
        end = round(self.now_s * 1000) + ms
        while self._calls and self._calls[0][0] * 1000 <= end + 1e-6:
            when, _, handle, callback, args = heapq.heappop(self._calls)
            self.now_s = when
            if not handle.cancelled:
                callback(*args)
        self.now_s = end / 1000
        while self._soon:
            self._soon.pop()()


def make() -> tuple[CrankedLoop, LoopTimers, list[tuple[int, str]]]:
    loop = CrankedLoop()
    fired: list[tuple[int, str]] = []

    def fire(operation: Any) -> None:
        fired.append((round(loop.now_s * 1000), operation.__name__))

    return loop, LoopTimers(loop, fire, list), fired


def named(name: str) -> Callable[[int], Result]:
    def operation(_now_ms: int) -> Result:
        return Result()

    operation.__name__ = name
    return operation


def test_a_timer_fires_once_at_its_time() -> None:
    loop, timers, fired = make()
    timers.schedule("a", 100, named("a"))
    loop.turn(99)
    assert fired == []
    loop.turn(1000)
    assert fired == [(100, "a")]


def test_pushing_a_timer_out_arms_nothing_until_the_old_time() -> None:
    loop, timers, fired = make()
    timers.schedule("a", 100, named("first"))
    for _ in range(50):
        loop.turn(1)
        timers.schedule("a", 100, named("last"))
    assert loop.armed == 1
    loop.turn(60)
    assert (loop.armed, fired) == (2, [])
    loop.turn(1000)
    assert fired == [(150, "last")]


def test_a_timer_that_is_restarted_keeps_its_operation() -> None:
    loop, timers, fired = make()
    timers.schedule("a", 100, named("a"))
    assert not timers.restart("b", 100), "it does not run"
    assert not timers.restart("a", 99), "it would come nearer"
    loop.turn(60)
    assert timers.restart("a", 100)
    assert (loop.armed, timers.deadlines()) == (1, {"a": 0.16})
    loop.turn(1000)
    assert fired == [(160, "a")]
    assert not timers.restart("a", 100)


def test_pulling_a_timer_in_works_at_once() -> None:
    loop, timers, fired = make()
    timers.schedule("a", 1000, named("late"))
    timers.schedule("a", 10, named("soon"))
    loop.turn(2000)
    assert fired == [(10, "soon")]


def test_a_cancelled_timer_is_silent_and_can_start_again() -> None:
    loop, timers, fired = make()
    timers.schedule("a", 10, named("a"))
    timers.schedule("b", 10, named("b"))
    timers.cancel("a")
    timers.cancel("never scheduled")
    timers.schedule("a", 30, named("again"))
    loop.turn(100)
    assert fired == [(10, "b"), (30, "again")]


def test_all_can_be_cancelled() -> None:
    loop, timers, fired = make()
    for key in range(5):
        timers.schedule(key, 10, named("x"))
    timers.cancel_all()
    loop.turn(100)
    assert fired == []


def many(fire: Callable[[Any], None]) -> tuple[CrankedLoop, LoopTimers, list[Iterator[None]]]:
    """Return timers of which more are due than fire at once, by their numbers, and the work that waits for turns."""
    loop = CrankedLoop()
    work: list[Iterator[None]] = []
    timers = LoopTimers(loop, fire, work.append)
    for key in range(MAX_AT_ONCE + 5):
        timers.schedule(key, 10, named(str(key)))
    loop.turn(10)
    return loop, timers, work


def test_many_timers_that_are_due_together_fire_in_several_turns() -> None:
    fired: list[str] = []
    loop, timers, work = many(lambda operation: fired.append(operation.__name__))
    at_once = [str(key) for key in range(MAX_AT_ONCE)]
    assert fired == at_once
    assert len(timers.keys()) == 5
    timers.schedule(MAX_AT_ONCE + 1, 20, named("restarted"))
    timers.cancel(MAX_AT_ONCE + 2)
    timers.schedule("later", 0, named("later"))
    loop.turn(5)
    (steps,) = work
    next(steps)
    assert fired == [*at_once, str(MAX_AT_ONCE)], "one in each step, and the later one behind those that wait"
    list(steps)
    assert fired[MAX_AT_ONCE + 1 :] == [str(MAX_AT_ONCE + 3), str(MAX_AT_ONCE + 4), "later"]
    loop.turn(100)
    assert fired[-1] == "restarted" and not timers.keys() and len(work) == 1
    timers.schedule("alone", 10, named("alone"))
    loop.turn(100)
    assert fired[-1] == "alone" and len(work) == 1


def test_timers_that_wait_for_a_turn_can_be_cancelled_together() -> None:
    fired: list[str] = []
    _, timers, (steps,) = many(lambda operation: fired.append(operation.__name__))
    timers.cancel_all()
    assert list(steps) == [] and len(fired) == MAX_AT_ONCE


def test_operation_that_fails_does_not_stop_those_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    fired: list[str] = []

    def fire(operation: Any) -> None:
        fired.append(operation.__name__)
        if operation.__name__ == str(MAX_AT_ONCE):
            raise RuntimeError("broken")

    _, _, (steps,) = many(fire)
    with caplog.at_level(logging.ERROR):
        list(steps)
    assert len(fired) == MAX_AT_ONCE + 5
    assert f"timer {MAX_AT_ONCE} failed" in caplog.text and "broken" in caplog.text


step = st.one_of(
    st.tuples(st.just("schedule"), st.sampled_from("abc"), st.integers(0, 50)),
    st.tuples(st.just("cancel"), st.sampled_from("abc"), st.just(0)),
    st.tuples(st.just("turn"), st.just(""), st.integers(1, 40)),
)


@settings(max_examples=25)
@given(st.lists(step, max_size=30))
def test_lazy_timers_fire_when_eager_ones_would(steps: list[tuple[str, str, int]]) -> None:
    loop, timers, fired = make()
    deadlines: dict[str, tuple[int, str]] = {}
    expected: list[tuple[int, str]] = []
    now_ms = 0
    for number, (verb, key, ms) in enumerate([*steps, ("turn", "", 100)]):
        if verb == "schedule":
            timers.schedule(key, ms, named(f"{key}{number}"))
            deadlines[key] = (now_ms + ms, f"{key}{number}")
        elif verb == "cancel":
            timers.cancel(key)
            deadlines.pop(key, None)
        else:
            loop.turn(ms)
            now_ms += ms
            due = [key for key, (when, _) in deadlines.items() if when <= now_ms]
            expected += [deadlines.pop(key) for key in due]
    assert sorted(fired) == sorted(expected)
