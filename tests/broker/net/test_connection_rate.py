"""max.connection.creation.rate: an average over time, with a burst of a second's worth."""

from __future__ import annotations

import random

import pytest

from gregor.broker.net.connection_rate import CreationRate
from gregor.config.definitions import INT_MAX


def delay_s(rate: CreationRate, now_s: float, per_second: int) -> float:
    """Return the delay of one incoming connection."""
    delay = rate.delay_s(now_s, per_second)
    rate.reserve(now_s, per_second)
    return delay


def test_no_limit() -> None:
    rate = CreationRate()
    assert [delay_s(rate, 5.0, INT_MAX) for _ in range(1000)] == [0.0] * 1000


def test_a_burst_then_one_by_one() -> None:
    rate = CreationRate()
    delays = [delay_s(rate, 100.0, 10) for _ in range(15)]
    assert delays[:10] == pytest.approx([0.0] * 10, abs=1e-9)
    assert delays[10:] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


@pytest.mark.parametrize("per_second", [1, 7, 100])
def test_nobody_gets_in_faster_on_the_average(per_second: int) -> None:
    rate, chance, now_s, begun = CreationRate(), random.Random(per_second), 1000.0, []
    for _ in range(500):
        now_s += chance.expovariate(2 * per_second)
        begun.append(now_s + delay_s(rate, now_s, per_second))
    for first in range(0, 400, 20):
        span_s = begun[first + 100] - begun[first]
        assert span_s * per_second + per_second + 1 >= 100


def test_a_quiet_time_is_made_up_for_once() -> None:
    rate = CreationRate()
    for _ in range(10):
        delay_s(rate, 0.0, 5)
    delays = [delay_s(rate, 1000.0, 5) for _ in range(7)]
    assert delays == pytest.approx([0.0] * 5 + [0.2, 0.4], abs=1e-9)


def test_to_ask_is_not_to_come_in() -> None:
    rate = CreationRate()
    for _ in range(10):
        rate.reserve(100.0, 5)
    assert [rate.delay_s(100.0, 5) for _ in range(3)] == pytest.approx([1.2] * 3)
