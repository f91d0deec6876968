"""storage.throttle with a clock that only its sleeps move."""

from __future__ import annotations

from storage.throttle import Throttle


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
