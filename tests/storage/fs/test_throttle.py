"""gregor.storage.fs.throttle with a clock that only tests and its own sleeps move."""

from __future__ import annotations

import pytest

from gregor.storage.fs.throttle import Pace, Throttle


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds
        self.slept_s += seconds


def test_a_fast_reader_is_held_to_the_rate() -> None:
    clock = Clock()
    throttle = Throttle(1000.0, clock, clock.sleep)
    for _ in range(1000):
        throttle.charge(100)
        clock.now_s += 0.001
    assert 98 <= clock.now_s - 100 <= 102, "100,000 bytes at 1000 a second"


def test_one_large_piece_is_waited_for() -> None:
    clock = Clock()
    Throttle(1000.0, clock, clock.sleep).charge(5000)
    assert clock.slept_s == 5


def test_a_slow_reader_never_waits_and_saves_nothing_up() -> None:
    clock = Clock()
    throttle = Throttle(1000.0, clock, clock.sleep)
    for _ in range(100):
        clock.now_s += 1
        throttle.charge(500)
    assert clock.slept_s == 0
    throttle.charge(50_000)
    assert clock.slept_s >= 49


def test_a_pace_is_that_of_the_limit_whatever_the_pieces() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.wait_s(1000) == 0
    for size_bytes in (100, 5000, 1, 900):
        pace.charge(size_bytes)
        assert pace.wait_s(1000) == pytest.approx(size_bytes / 1000)
        clock.now_s += size_bytes / 1000
        assert pace.wait_s(1000) < 1e-9


def test_an_idle_time_saves_nothing_up() -> None:
    clock = Clock()
    pace = Pace(clock)
    clock.now_s += 3600
    assert pace.wait_s(1000) == 0
    clock.now_s += 0.25  # the piece itself needs time, too
    pace.charge(1000)
    assert pace.wait_s(1000) == 0.75


def test_another_limit_counts_at_once() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.charge(10_000)
    assert pace.wait_s(1000) == 10
    clock.now_s += 5
    assert pace.wait_s(1000) == 5
    assert pace.wait_s(100_000) == 0.05
    assert pace.wait_s(0) == float("inf")
    clock.now_s += 1000
    assert pace.wait_s(0) == float("inf")
    assert pace.wait_s(100_000) == 0.05
    assert pace.wait_s(2**63 - 1) < 1e-12


def test_a_wait_ends_when_it_is_over_to_the_byte() -> None:
    clock = Clock()
    pace = Pace(clock)
    for size_bytes in (*range(1, 300), 12_345):
        pace.charge(size_bytes)
        clock.now_s += pace.wait_s(300)
        assert pace.wait_s(300) == 0


def test_no_wait_is_longer_than_the_window() -> None:
    clock = Clock()
    pace = Pace(clock, window_s=5)
    pace.charge(1_000_000)
    assert pace.wait_s(1000) == 5
    clock.now_s += 2
    assert pace.wait_s(1000) == 3
    pace.charge(1_000_000)
    assert pace.wait_s(10_000) == 5
    assert pace.wait_s(1000) == 5, "also at a rate that has fallen since"
    assert pace.wait_s(0) == float("inf")
    assert pace.wait_s(1000) == 5
