"""Processor time that the host of this machine gave to others: while it does, measures of wall time mean little."""

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
        """Return a share from 0 to 1, or NaN where the system does not tell it."""
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
