"""Throttles of moving replicas: which are meant, and for how long they wait."""

from __future__ import annotations

from gregor.config.definitions import LONG_MAX
from gregor.replication.partition.throttle import ReplicaThrottle


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
