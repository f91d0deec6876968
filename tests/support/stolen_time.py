"""Processor time that went to others, by this machine's host or on it: what measures of wall time must know."""

from __future__ import annotations

import math

MAX_SHARE = 0.01
"""Below it, wall time is held against its limit."""


def steal_of(stat: str) -> tuple[int, int]:
    """Return (all ticks, stolen ticks) of the first line of /proc/stat; guests' time is part of user and nice."""
    name, *fields = stat.split("\n", 1)[0].split()
    if name != "cpu" or len(fields) < 8:
        raise ValueError(f"no line about all processors: {stat[:80]!r}")
    ticks = [int(field) for field in fields[:8]]
    return sum(ticks), ticks[7]


class StolenTime:
    """The share of all processors' time that was stolen since the object was made."""

    def __init__(self, path: str = "/proc/stat") -> None:
        self._path = path
        self._begin = self._ticks()

    def share(self) -> float:
        """Return a share from 0 to 1, or NaN if the system has no such figure."""
        begin, end = self._begin, self._ticks()
        if begin is None or end is None:
            return math.nan
        return (end[1] - begin[1]) / max(1, end[0] - begin[0])

    def allows_wall_time(self) -> bool:
        """Whether wall time may be held against a limit."""
        return self.share() < MAX_SHARE

    def _ticks(self) -> tuple[int, int] | None:
        try:
            with open(self._path) as file:
                return steal_of(file.readline())
        except OSError:
            return None


def waited_s() -> float:
    """Return how long this thread was ready to run while another process had the processor; 0 if the system has no such
    figure."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except OSError:
        return 0.0
