"""Limits of the rate, in bytes per second, at which files are read and written."""

from __future__ import annotations

import math
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
    """For an event loop, with a limit that may change at any time. Call `wait_s` right before each piece until it
    returns 0, and `charge` after the piece."""

    __slots__ = ("_charged_bytes", "_clock_s", "_reduced_s", "_window_s")

    def __init__(self, clock_s: Callable[[], float], window_s: float = math.inf) -> None:
        """`window_s`: the longest wait at a rate above 0, however much was charged."""
        self._clock_s = clock_s
        self._window_s = window_s
        self._reduced_s = clock_s()
        self._charged_bytes = 0.0

    def charge(self, size_bytes: int) -> None:
        """Count a piece that was read, written or sent."""
        self._charged_bytes += size_bytes

    def wait_s(self, bytes_per_second: float) -> float:
        """Return the time in which all charged bytes pass at this rate: 0 if none are left, infinity at a rate of 0.

        The time since the last call counts at the present rate; time that was not needed is not kept for later charges.
        """
        now_s = self._clock_s()
        left_bytes = self._charged_bytes - (now_s - self._reduced_s) * bytes_per_second
        # A rounding error is no part of a byte; the wait for it may be shorter than a tick of the clock.
        self._charged_bytes = left_bytes if left_bytes >= 1 else 0.0
        self._reduced_s = now_s
        if bytes_per_second <= 0:
            return math.inf
        self._charged_bytes = min(self._charged_bytes, self._window_s * bytes_per_second)
        return self._charged_bytes / bytes_per_second
