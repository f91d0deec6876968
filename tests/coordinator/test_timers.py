"""Timers over an event loop, beside a twin that re-arms every time."""

import heapq
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.coordinator.result import Result
from gregor.coordinator.timers import LoopTimers


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

    def time(self) -> float:
        return self.now_s

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Handle:
        handle = Handle()
        self.armed += 1
        heapq.heappush(self._calls, (when, self.armed, handle, callback, args))
        return handle

    def turn(self, ms: int) -> None:
        end = round(self.now_s * 1000) + ms
        while self._calls and self._calls[0][0] * 1000 <= end + 1e-6:
            when, _, handle, callback, args = heapq.heappop(self._calls)
            self.now_s = when
            if not handle.cancelled:
                callback(*args)
        self.now_s = end / 1000


def make() -> tuple[CrankedLoop, LoopTimers, list[tuple[int, str]]]:
    loop = CrankedLoop()
    fired: list[tuple[int, str]] = []

    def fire(operation: Any) -> None:
        fired.append((round(loop.now_s * 1000), operation.__name__))

    return loop, LoopTimers(loop, fire), fired


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
