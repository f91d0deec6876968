"""Keeps a worker below so many bytes a second, reading and writing together (Kafka's Throttler)."""

from __future__ import annotations

from collections.abc import Callable

WINDOW_S = 0.3
"""What was not used in one window cannot be made up for in a later one."""


class Throttle:
    """`charge` waits when its caller was too fast."""

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
