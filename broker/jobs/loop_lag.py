"""How long the event loop keeps its callers waiting: the one figure that says whether everybody is served in time.

Nothing is paid per request, and nothing while the broker is idle: a timer that would wake an idle process every few
milliseconds costs a whole per cent of a core. Instead the process's own processor time sets the pace (ITIMER_PROF): at
each signal, after some 4 ms of work, the loop is handed a callback, and the time until it comes round to it is a stall.
One of 10 ms is seen as 6 to 10. What the loop waits for without working, a disk above all, is seen by a slow timer, and
only with luck below 200 ms. A round in which the loop serves many connections counts like any other work: whoever comes
next has to wait for it.

With each stall goes the processor time that the loop's thread had meanwhile, which a busy machine does not distort, and
the place in the code where a later signal met it.
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
"""Lower bounds of the histogram's classes; what is below the first is no stall."""
LIMIT_MS = 10
"""What no stall should exceed; those that do are named in the log once a minute."""
WARN_MS = 100
"""A stall from here on is a warning of its own."""

_WARN_EVERY_S = 10.0
_WINDOW_S = 10.0
_WINDOWS = 6
"""Of a minute; the one that has just begun comes on top."""
_FRAMES_NAMED = 3

logger = logging.getLogger("gregor.stalls")


class Lag(NamedTuple):
    """`lasted_ms` in wall time; `busy_ms` of it on the processor; `doing` is empty of short ones."""

    lasted_ms: float
    busy_ms: float
    doing: str


class LagCounts:
    """The stalls of a stretch of time; `counts[i]` lasted at least BOUNDS_MS[i], but less than the bound after it."""

    __slots__ = ("counts", "longest_busy_ms", "longest_ms")

    def __init__(self) -> None:
        self.counts = [0] * len(BOUNDS_MS)
        self.longest_ms = 0.0
        self.longest_busy_ms = 0.0
        """Of the processor time alone: what the broker itself did, however busy the machine was."""

    def add(self, lasted_ms: float, busy_ms: float) -> None:
        self.counts[bisect_right(BOUNDS_MS, lasted_ms) - 1] += 1
        self.longest_ms = max(self.longest_ms, lasted_ms)
        self.longest_busy_ms = max(self.longest_busy_ms, busy_ms)

    def merge(self, other: LagCounts) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.longest_ms = max(self.longest_ms, other.longest_ms)
        self.longest_busy_ms = max(self.longest_busy_ms, other.longest_busy_ms)

    def over(self, bound_ms: int) -> int:
        """How many lasted at least so long; `bound_ms` is one of BOUNDS_MS."""
        return sum(self.counts[BOUNDS_MS.index(bound_ms) :])

    def figures(self) -> dict[str, Any]:
        """As they go to whoever asks from outside; `at_least_ms` holds the counts by their lower bounds."""
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
    """The figures: `total` since the start, `last_minute()`, and `latest`, the last one over LIMIT_MS. No clock of its
    own."""

    def __init__(self) -> None:
        self.total = LagCounts()
        self.latest: Lag | None = None
        self._windows: deque[LagCounts] = deque([LagCounts()], _WINDOWS + 1)
        self._window_end_s = 0.0
        self._warned_s = float("-inf")

    def late(self, now_s: float, lasted_ms: float, busy_ms: float, doing: str) -> None:
        """A tick came so late."""
        self.roll(now_s)
        self.total.add(lasted_ms, busy_ms)
        self._windows[-1].add(lasted_ms, busy_ms)
        if lasted_ms >= LIMIT_MS:
            self.latest = stall = Lag(lasted_ms, busy_ms, doing)
            logger.debug("%s", _told(stall))
            if lasted_ms >= WARN_MS and now_s - self._warned_s >= _WARN_EVERY_S:
                self._warned_s = now_s
                logger.warning("%s", _told(stall))

    def roll(self, now_s: float) -> bool:
        """Begin a new window of 10 s if it is time; whether it was."""
        if now_s < self._window_end_s:
            return False
        # After a long silence what was counted before it is no longer of the last minute.
        for _ in range(min(_WINDOWS + 1, 1 + int((now_s - self._window_end_s) / _WINDOW_S))):
            self._windows.append(LagCounts())
        self._window_end_s = now_s + _WINDOW_S
        return True

    def last_minute(self) -> LagCounts:
        counts = LagCounts()
        for window in self._windows:
            counts.merge(window)
        return counts


def _told(stall: Lag) -> str:
    text = f"the event loop was held up for {stall.lasted_ms:.0f} ms, {stall.busy_ms:.0f} ms of them on the processor"
    return f"{text}, by {stall.doing}" if stall.doing else text


class Stalls(LagMeter):
    """The meter of the loop that runs in the main thread, from `start()` to `stop()`."""

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
        self._seen_s = 0.0  # when the last stall ended
        self._doing = ""
        self._minute_end_s = 0.0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """To be called on the main thread. Without interval timers (Windows) only the slow timer is left."""
        self._loop = loop
        now_s = self._clock_s()
        self._minute_end_s = now_s + _WINDOW_S * _WINDOWS
        self._tick_later(now_s)
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGPROF, self.worked)
            signal.siginterrupt(signal.SIGPROF, False)
            signal.signal(signal.SIGCONT, self._continued)
            signal.setitimer(signal.ITIMER_PROF, WORK_S, WORK_S)

    def stop(self) -> None:
        """Ends with a line in the log. Does nothing when it was not started."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            if hasattr(signal, "setitimer"):
                signal.setitimer(signal.ITIMER_PROF, 0)
                signal.signal(signal.SIGCONT, signal.SIG_DFL)
            logger.info("event loop lag: %s", self.total)

    # SIGPROF keeps its handler after `stop`: a signal that is still on its way would end the process.
    def worked(self, _signal: int, frame: FrameType | None) -> None:
        """The process has worked for another WORK_S."""
        if not self._pending:
            if self._timer is not None and self._loop is not None:
                self._pending = True
                self._since_s, self._since_busy_s = self._clock_s(), self._busy_clock_s()
                self._loop.call_soon(self.came_round)
        elif not self._doing:
            self._doing = where(frame)

    def came_round(self) -> None:
        """The loop's next turn."""
        now_s = self._clock_s()
        lasted_s = now_s - self._since_s
        if lasted_s * 1000 >= BOUNDS_MS[0]:
            busy_s = min(lasted_s, self._busy_clock_s() - self._since_busy_s)
            self.late(now_s, lasted_s * 1000, busy_s * 1000, self._doing)
            self._seen_s = now_s
        self._pending = False
        self._doing = ""

    def tick(self) -> None:
        """The slow timer; `worked` may have begun to measure the same stall, or be done with it."""
        now_s = self._clock_s()
        lag_s = now_s - self._due_s
        if lag_s * 1000 >= LIMIT_MS and not self._pending and self._seen_s < self._due_s:
            self.late(now_s, lag_s * 1000, 0.0, "")
        if self.roll(now_s) and now_s >= self._minute_end_s:
            self._minute_end_s = now_s + _WINDOW_S * _WINDOWS
            minute = self.last_minute()
            if minute.longest_ms >= LIMIT_MS:
                logger.info("event loop lag in the last minute: %s", minute)
        self._tick_later(now_s)

    def _tick_later(self, now_s: float) -> None:
        self._due_s = now_s + TICK_S
        assert self._loop is not None
        self._timer = self._loop.call_later(TICK_S, self.tick)

    def _continued(self, _signal: int, _frame: FrameType | None) -> None:
        """The process was stopped (SIGSTOP) and goes on: that was no stall."""
        self._since_s = self._clock_s()
        self._due_s = self._since_s + TICK_S


def where(frame: FrameType | None) -> str:
    """The innermost calls of a stack, as `module.function:line < caller`."""
    named: list[str] = []
    while frame is not None and len(named) < _FRAMES_NAMED:
        module = frame.f_globals.get("__name__", "?")
        named.append(f"{module}.{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(named)
