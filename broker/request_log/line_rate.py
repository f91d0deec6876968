"""The limit of the lines that requests may cause: a burst of them must not fill a disk."""

from __future__ import annotations

from collections.abc import Callable

MAX_LINES = 100
"""In one second."""
MAX_BYTES = 256 * 1024
"""In one second; the last line may exceed it."""
WINDOW_S = 1.0


class LineRate:
    """Admits some lines in each second, and reports how many were left out once the second is over."""

    def __init__(
        self,
        clock_s: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], object],
        report: Callable[[int], None],
    ) -> None:
        """`report` gets the number of lines that were left out in one second."""
        self._clock_s = clock_s
        self._call_later = call_later
        self._report = report
        self._end_s = 0.0
        self._lines = self._bytes = self._left_out = 0

    def admits(self) -> bool:
        """Return whether a line may be written now; else count it as left out."""
        now_s = self._clock_s()
        if now_s >= self._end_s and not self._left_out:
            self._end_s = now_s + WINDOW_S
            self._lines = self._bytes = 0
        if self._lines < MAX_LINES and self._bytes < MAX_BYTES:
            self._lines += 1
            return True
        if not self._left_out:
            self._call_later(max(0.0, self._end_s - now_s), self._end_window)
        self._left_out += 1
        return False

    def wrote(self, size_bytes: int) -> None:
        """Count the bytes of a line."""
        self._bytes += size_bytes

    def _end_window(self) -> None:
        left_out, self._left_out = self._left_out, 0
        self._end_s = 0.0
        self._report(left_out)
