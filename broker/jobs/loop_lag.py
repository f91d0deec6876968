"""Loop lag: how long the event loop keeps its callers waiting, the one figure that shows whether all are served in
time.

The measurement costs nothing per request, and nothing while the broker is idle: a timer that wakes an idle process
every few milliseconds costs a whole per cent of a core. Instead the process's own processor time sets the pace
(ITIMER_PROF): at each signal, after some 4 ms of work, a callback is scheduled on the loop, and the time until the loop
calls it is a lag. One of 10 ms is measured as 6 to 10. A wait of the loop without work, for a disk above all, is
measured by a slow timer, and only by chance if it is below 200 ms. A turn in which the loop serves many connections
counts like any other work: the next caller has to wait for it.

Each lag is recorded with the processor time that the loop's thread had meanwhile, which a busy machine does not
distort, and with the place in the code that a later signal interrupted.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

WORK_S = 0.004
"""Processor time between two signals; the kernel rounds it up to its own tick."""
TICK_S = 0.2
BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Lower bounds of the histogram's classes; a wait below the first one does not count."""
LIMIT_MS = 10
"""No lag should exceed this; those that do are logged once a minute."""
WARN_MS = 100
"""A lag from here on is a warning of its own."""

_WARN_EVERY_S = 10.0
_WINDOW_S = 10.0
_WINDOWS = 6
"""In a minute; the one that has just begun is added to them."""
_FRAMES_NAMED = 3

_log = logging.getLogger("gregor.stalls")


class Lag(NamedTuple):
    """`lasted_ms` in wall time; `busy_ms` of it on the processor; `doing` is empty for short ones."""

    lasted_ms: float
    busy_ms: float
    doing: str


class LagCounts:
    """The lags of a stretch of time; `counts[i]` lasted at least BOUNDS_MS[i], but less than the bound after it."""

    __slots__ = ("counts", "longest_busy_ms", "longest_ms")

    def __init__(self) -> None:
        self.counts = [0] * len(BOUNDS_MS)
        self.longest_ms = 0.0
        self.longest_busy_ms = 0.0
        """Of the processor time alone: the broker's own work, however busy the machine was."""

    def add(self, lasted_ms: float, busy_ms: float) -> None:
        self.counts[bisect_right(BOUNDS_MS, lasted_ms) - 1] += 1
        self.longest_ms = max(self.longest_ms, lasted_ms)
        self.longest_busy_ms = max(self.longest_busy_ms, busy_ms)

    def merge(self, other: LagCounts) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.longest_ms = max(self.longest_ms, other.longest_ms)
        self.longest_busy_ms = max(self.longest_busy_ms, other.longest_busy_ms)

    def over(self, bound_ms: int) -> int:
        """Return how many lasted at least `bound_ms`, which is one of BOUNDS_MS."""
        return sum(self.counts[BOUNDS_MS.index(bound_ms) :])

    def figures(self) -> dict[str, Any]:
        """Return the answer of the admin socket; `at_least_ms` holds the counts by their lower bounds."""
        return {
            "longest_ms": round(self.longest_ms, 1),
            "longest_busy_ms": round(self.longest_busy_ms, 1),
            "at_least_ms": {str(bound): count for bound, count in zip(BOUNDS_MS, self.counts, strict=True)},
        }

    def __str__(self) -> str:
        return (
            f"longest {self.longest_ms:.0f} ms ({self.longest_busy_ms:.0f} ms on the processor), "
            f"{self.over(LIMIT_MS)} of {LIMIT_MS} ms or more"
        )


class LagMeter:
    """Collects the figures: `total` since the start, `last_minute()`, and `latest`, the last one over LIMIT_MS. It has
    no clock of its own."""

    def __init__(self) -> None:
        self.total = LagCounts()
        self.latest: Lag | None = None
        self._windows: deque[LagCounts] = deque([LagCounts()], _WINDOWS + 1)
        self._window_end_s = 0.0
        self._warned_s = float("-inf")

    def record(self, now_s: float, lasted_ms: float, busy_ms: float, doing: str) -> None:
        """Count one lag."""
        self.roll(now_s)
        self.total.add(lasted_ms, busy_ms)
        self._windows[-1].add(lasted_ms, busy_ms)
        if lasted_ms >= LIMIT_MS:
            self.latest = lag = Lag(lasted_ms, busy_ms, doing)
            _log.debug("%s", _described(lag))
            if lasted_ms >= WARN_MS and now_s - self._warned_s >= _WARN_EVERY_S:
                self._warned_s = now_s
                _log.warning("%s", _described(lag))

    def roll(self, now_s: float) -> bool:
        """Begin a new window of 10 s if it is time; return whether it was."""
        if now_s < self._window_end_s:
            return False
        # After a long time without a tick the counts before it are older than a minute.
        for _ in range(min(_WINDOWS + 1, 1 + int((now_s - self._window_end_s) / _WINDOW_S))):
            self._windows.append(LagCounts())
        self._window_end_s = now_s + _WINDOW_S
        return True

    def last_minute(self) -> LagCounts:
        counts = LagCounts()
        for window in self._windows:
            counts.merge(window)
        return counts


def _described(lag: Lag) -> str:
    text = f"the event loop was held up for {lag.lasted_ms:.0f} ms, {lag.busy_ms:.0f} ms of them on the processor"
    return f"{text}, by {lag.doing}" if lag.doing else text


class LoopLag(LagMeter):
    """Measures the loop that runs in the main thread, from `start()` to `stop()`."""

    def __init__(
        self,
        clock_s: Callable[[], float] = time.monotonic,
        busy_clock_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """`busy_clock_s`: the processor time of the thread that the loop runs in."""
        super().__init__()
        self._clock_s = clock_s
        self._busy_clock_s = busy_clock_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._pending = False
        self._since_s = self._since_busy_s = 0.0
        self._seen_s = 0.0  # the end of the last lag
        self._doing = ""
        self._minute_end_s = 0.0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start, on the main thread. Without interval timers (Windows) only the slow timer measures."""
        self._loop = loop
        now_s = self._clock_s()
        self._minute_end_s = now_s + _WINDOW_S * _WINDOWS
        self._tick_later(now_s)
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGPROF, self.worked)
            signal.siginterrupt(signal.SIGPROF, False)
            signal.signal(signal.SIGCONT, self.continued)
            signal.setitimer(signal.ITIMER_PROF, WORK_S, WORK_S)

    def stop(self) -> None:
        """Stop, with a line in the log. Does nothing when it was not started."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            if hasattr(signal, "setitimer"):
                signal.setitimer(signal.ITIMER_PROF, 0)
                signal.signal(signal.SIGCONT, signal.SIG_DFL)
            _log.info("event loop lag: %s", self.total)

    # SIGPROF keeps its handler after `stop`: a signal that is still on its way would end the process.
    def worked(self, _signal: int, frame: FrameType | None) -> None:
        """Handle SIGPROF: the process has worked for another WORK_S."""
        if not self._pending:
            if self._timer is not None and self._loop is not None:
                self._pending = True
                self._since_s, self._since_busy_s = self._clock_s(), self._busy_clock_s()
                self._loop.call_soon(self.resumed)
        elif not self._doing:
            self._doing = where(frame)

    def resumed(self) -> None:
        """Measure, at the loop's next turn."""
        now_s = self._clock_s()
        lasted_s = now_s - self._since_s
        if lasted_s * 1000 >= BOUNDS_MS[0]:
            busy_s = min(lasted_s, self._busy_clock_s() - self._since_busy_s)
            self.record(now_s, lasted_s * 1000, busy_s * 1000, self._doing)
            self._seen_s = now_s
        self._pending = False
        self._doing = ""

    def tick(self) -> None:
        """Handle the slow timer; `worked` may have begun to measure the same lag, or be done with it."""
        now_s = self._clock_s()
        lag_s = now_s - self._due_s
        if lag_s * 1000 >= LIMIT_MS and not self._pending and self._seen_s < self._due_s:
            self.record(now_s, lag_s * 1000, 0.0, "")
        if self.roll(now_s) and now_s >= self._minute_end_s:
            self._minute_end_s = now_s + _WINDOW_S * _WINDOWS
            minute = self.last_minute()
            if minute.longest_ms >= LIMIT_MS:
                _log.info("event loop lag in the last minute: %s", minute)
        self._tick_later(now_s)

    def _tick_later(self, now_s: float) -> None:
        self._due_s = now_s + TICK_S
        assert self._loop is not None
        self._timer = self._loop.call_later(TICK_S, self.tick)

    def continued(self, _signal: int, _frame: FrameType | None) -> None:
        """Handle SIGCONT: the time in which the process was stopped (SIGSTOP) is no lag."""
        self._since_s = self._clock_s()
        self._due_s = self._since_s + TICK_S


def where(frame: FrameType | None) -> str:
    """Return the innermost calls of a stack, as `module.function:line < caller`."""
    named: list[str] = []
    while frame is not None and len(named) < _FRAMES_NAMED:
        module = frame.f_globals.get("__name__", "?")
        named.append(f"{module}.{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(named)
