"""Loop lag, measured with clocks turned by hand and a loop that only remembers its callbacks."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gregor.broker.jobs.loop_lag import BOUNDS_MS, LIMIT_MS, TICK_S, WARN_MS, LagCounts, LagMeter, LoopLag, where
from tests.broker.harness import running


class FakeTimer:
    def cancel(self) -> None:
        return


class FakeLoop:
    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self.soon: list[Callable[[], None]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> FakeTimer:
        self.later.append((self.now_s() + delay_s, callback))
        return FakeTimer()


class Bench:
    """A meter under hand-cranked clocks; the signals are set by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr("gregor.broker.jobs.loop_lag.signal.setitimer")  # no signals of the process itself
        self.now_s = 100.0
        self.busy_s = 5.0
        self.loop = FakeLoop(lambda: self.now_s)
        self.lag = LoopLag(lambda: self.now_s, lambda: self.busy_s)
        loop: Any = self.loop
        self.lag.start(loop)

    def work(self, seconds: float, *, waiting: float = 0.0) -> None:
        self.now_s += seconds + waiting
        self.busy_s += seconds

    def signal(self) -> None:
        self.lag.worked(0, inspect.currentframe())

    def turn(self) -> None:
        due, self.loop.soon = self.loop.soon, []
        for callback in due:
            callback()

    def tick_in_time(self) -> None:
        [(due_s, _)] = self.loop.later
        self.now_s = max(self.now_s, due_s)
        self.tick()

    def tick(self) -> None:
        [(_, callback)], self.loop.later = self.loop.later, []
        callback()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_a_lag_is_the_time_from_a_signal_to_the_next_turn(bench: Bench) -> None:
    bench.signal()
    bench.work(0.012, waiting=0.003)
    bench.turn()
    assert bench.lag.total.longest_ms == pytest.approx(15)
    assert bench.lag.total.longest_busy_ms == pytest.approx(12)
    assert bench.lag.total.counts[BOUNDS_MS.index(10)] == 1
    assert bench.lag.latest is not None
    assert bench.lag.latest.lasted_ms == pytest.approx(15)


def test_work_in_short_pieces_is_no_lag(bench: Bench) -> None:
    for _ in range(100):
        bench.signal()
        bench.work(0.0009)
        bench.turn()
        bench.work(0.003)
    assert bench.lag.total.counts == [0] * len(BOUNDS_MS)


def test_a_second_signal_names_the_running_code(bench: Bench) -> None:
    bench.signal()
    bench.work(0.02)
    bench.signal()
    bench.work(0.02)
    bench.signal()
    assert len(bench.loop.soon) == 1
    bench.turn()
    assert bench.lag.latest is not None
    assert "Bench.signal" in bench.lag.latest.doing
    bench.signal()
    bench.work(0.02)
    bench.turn()
    assert bench.lag.latest.doing == ""  # of the lag before


def test_the_slow_timer_measures_a_wait_without_signals(bench: Bench) -> None:
    bench.now_s += TICK_S + 0.3
    bench.tick()
    assert bench.lag.total.longest_ms == pytest.approx(300)
    assert bench.lag.total.longest_busy_ms == 0
    bench.tick_in_time()
    assert bench.lag.total.over(1) == 1


@pytest.mark.parametrize("tick_first", [True, False])
def test_a_lag_is_counted_once(bench: Bench, tick_first: bool) -> None:
    bench.now_s += TICK_S - 0.01
    bench.signal()
    bench.work(0.5)
    for happens in (bench.tick, bench.turn) if tick_first else (bench.turn, bench.tick):
        happens()
    assert bench.lag.total.over(1) == 1
    assert bench.lag.total.longest_ms == pytest.approx(500)


def test_the_time_of_a_stopped_process_is_no_lag(bench: Bench) -> None:
    bench.signal()
    bench.now_s += 3600
    bench.lag.continued(0, None)
    bench.turn()
    bench.tick()
    assert bench.lag.total.longest_ms == 0


def test_the_last_minute_forgets(bench: Bench) -> None:
    meter = bench.lag
    for _ in range(int(120 / TICK_S)):
        if bench.now_s == 100.0:
            bench.signal()
            bench.work(0.05)
            bench.turn()
        bench.tick_in_time()
        if bench.now_s < 140:
            assert meter.last_minute().longest_ms == pytest.approx(50)
    assert meter.last_minute().over(1) == 0
    assert meter.total.longest_ms == pytest.approx(50)


def test_a_minute_with_lags_and_the_end_are_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench.signal()
    bench.work(0.05)
    bench.turn()
    for _ in range(int(65 / TICK_S)):
        bench.tick_in_time()
    assert caplog.messages == [
        "event loop lag in the last minute: longest 50 ms (50 ms on the processor), 1 of 10 ms or more"
    ]
    for _ in range(int(65 / TICK_S)):
        bench.tick_in_time()
    assert len(caplog.messages) == 1
    bench.lag.stop()
    bench.lag.stop()
    assert caplog.messages[1:] == ["event loop lag: longest 50 ms (50 ms on the processor), 1 of 10 ms or more"]


def test_after_stop_a_late_signal_does_nothing(bench: Bench) -> None:
    bench.lag.stop()
    bench.signal()
    assert bench.loop.soon == []


def test_warnings_are_rare(caplog: pytest.LogCaptureFixture) -> None:
    meter = LagMeter()
    for second in range(20):
        meter.record(second, WARN_MS, 1, "here")
        meter.record(second, LIMIT_MS, 1, "here")
    assert [record.levelname for record in caplog.records if record.levelno >= logging.WARNING] == ["WARNING"] * 2
    assert "by here" in caplog.text


def test_counts_add_up() -> None:
    one, other = LagCounts(), LagCounts()
    for lasted_ms in (1, 1.9, 2, 9.99, 10, 999, 1000, 100_000):
        one.add(lasted_ms, lasted_ms / 2)
    assert one.counts == [2, 1, 1, 1, 0, 0, 0, 0, 1, 2]
    other.add(30, 30)
    other.merge(one)
    assert other.over(10) == 5
    assert other.over(1) == 9
    assert (other.longest_ms, other.longest_busy_ms) == (100_000, 50_000)


def test_figures() -> None:
    counts = LagCounts()
    counts.add(12.345, 3.21)
    assert counts.figures() == {
        "longest_ms": 12.3,
        "longest_busy_ms": 3.2,
        "at_least_ms": {str(bound): int(bound == 10) for bound in BOUNDS_MS},
    }


def test_the_admin_socket_answers_the_figures(tmp_path: Path) -> None:
    with running(tmp_path) as harness:
        harness.node.loop_lag.record(1.0, 30, 20, "")

        async def ask() -> list[dict[str, Any]]:
            return [answer async for answer in harness.node.control.carry_out({"command": "stalls"})]

        [answer] = harness.run(ask())
    assert answer["total"] == answer["last_minute"] == harness.node.loop_lag.total.figures()
    assert answer["total"]["longest_ms"] == 30


def test_where() -> None:
    assert where(None) == ""
    assert where(inspect.currentframe()).split(" < ")[0].startswith(f"{__name__}.test_where:")


@pytest.mark.slow
def test_signals_of_the_process() -> None:
    """The real thing: a loop that is held up for a third of a second. A busy machine delays the first signal."""

    async def run() -> LoopLag:
        lag = LoopLag()
        lag.start(asyncio.get_running_loop())
        end = time.thread_time() + 0.3
        while time.thread_time() < end:
            pass
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        lag.stop()
        return lag

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        lag = runner.run(run())
    assert lag.total.longest_busy_ms > 60
    assert lag.latest is not None
    assert "test_signals_of_the_process" in lag.latest.doing
