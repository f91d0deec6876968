"""Limits of the rate, in bytes per second, at which files are read and written."""

from __future__ import annotations

from collections.abc import Callable

WINDOW_S = 0.3
"""Capacity that is not used in one window is not available in a later one."""


class Throttle:
    """For a worker process: `charge` waits when its caller was too fast. (Kafka's Throttler.)"""

    __slots__ = ("_bytes", "_clock_s", "_sleep", "_started_s", "bytes_per_second")

    def __init__(self, bytes_per_second: float, clock_s: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self.bytes_per_second = bytes_per_second
        self._clock_s = clock_s
        self._sleep = sleep
        self._started_s = clock_s()
        self._bytes = 0

    def charge(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        elapsed_s = self._clock_s() - self._started_s
        early_s = self._bytes / self.bytes_per_second - elapsed_s
        if early_s > WINDOW_S or (early_s > 0 and elapsed_s >= WINDOW_S):
            self._sleep(early_s)
        elif elapsed_s < WINDOW_S:
            return
        self._started_s = self._clock_s()
        self._bytes = 0


class Pace:
    """For an event loop, with a limit that may change at any time. Before each piece, wait until `wait_s` returns 0,
    and `charge` the piece afterwards."""

    __slots__ = ("_charged_bytes", "_clock_s", "_updated_s")

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._updated_s = clock_s()
        self._charged_bytes = 0.0

    def charge(self, size_bytes: int) -> None:
        """Note that this many bytes were read or written."""
        self._charged_bytes += size_bytes

    def wait_s(self, bytes_per_second: float) -> float:
        """Return the time until everything charged is within this rate; infinite at a rate of 0. The time since the
        last call counts at the present rate, and its unused part is lost."""
        now_s = self._clock_s()
        self._charged_bytes = max(0.0, self._charged_bytes - (now_s - self._updated_s) * bytes_per_second)
        self._updated_s = now_s
        if bytes_per_second <= 0:
            return float("inf")
        return self._charged_bytes / bytes_per_second
