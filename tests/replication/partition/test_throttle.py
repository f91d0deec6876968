"""Throttles of moving replicas: which are meant, and for how long they wait."""

from __future__ import annotations

from gregor.config.definitions import LONG_MAX
from gregor.replication.partition.throttle import MIN_WAIT_S, WINDOW_S, ReplicaThrottle


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_whom_a_list_names() -> None:
    throttle = ReplicaThrottle(101, lambda: 1, Clock())
    assert not throttle.names([], 0)
    assert throttle.names(["*"], 7)
    assert throttle.names(["0:101", "1:102"], 0)
    assert not throttle.names(["0:101", "1:102"], 1)
    assert not throttle.names(["0:1010"], 0)


def test_what_was_taken_is_waited_for_at_the_rate_of_now() -> None:
    clock, rate = Clock(), LONG_MAX
    throttle = ReplicaThrottle(1, lambda: rate, clock)
    throttle.charge(10**9)
    assert throttle.wait_s() == 0
    rate = 1000
    assert throttle.wait_s() == 0, "what came without a limit is not owed"
    throttle.charge(2000)
    assert throttle.wait_s() == 2
    clock.now_s = 1.5
    assert throttle.wait_s() == 0.5
    rate = 250
    assert throttle.wait_s() == 2
    rate = LONG_MAX
    assert throttle.wait_s() == 0


def test_bytes_of_the_last_window_alone_delay_a_fetch() -> None:
    clock = Clock()
    throttle = ReplicaThrottle(1, lambda: 1000, clock)
    for _ in range(3600):  # replicas in sync, which move ten times the rate for an hour
        throttle.charge(10_000)
        clock.now_s += 1
    assert 9 < throttle.wait_s() <= WINDOW_S
    clock.now_s += WINDOW_S
    assert throttle.wait_s() == 0


def test_an_hour_without_a_fetch_outlasts_all_that_came_before_it() -> None:
    clock = Clock()
    throttle = ReplicaThrottle(1, lambda: 1000, clock)
    for _ in range(3600):
        throttle.charge(10_000)
    clock.now_s = 3600
    assert throttle.wait_s() == 0


def test_a_fetch_after_each_wait_finds_room_at_any_rate() -> None:
    for rate in (1, 7, 300, 1000, 10**9, 10**15):
        clock = Clock()
        clock.now_s = 1_000_000.1
        throttle = ReplicaThrottle(1, lambda rate=rate: rate, clock)  # type: ignore[misc]
        for size_bytes in (1, 333, 1_048_576):
            throttle.charge(size_bytes)
            wait_s = throttle.wait_s()
            assert MIN_WAIT_S <= wait_s <= WINDOW_S
            clock.now_s += wait_s
            assert throttle.wait_s() == 0
