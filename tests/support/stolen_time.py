"""Processor time that went to others, by this machine's host or on it: what measures of wall time must know."""

from __future__ import annotations

import contextlib
import glob
import math
import os
import time

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


def waited_of_process_s(pid: int) -> float:
    """Return the same for all threads of a process together. Those that have ended are not counted."""
    total_ns = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with contextlib.suppress(OSError), open(path) as file:
            total_ns += int(file.read().split()[1])
    return total_ns / 1e9


class UndisturbedTime:
    """Wall time since the object was made, without the time for which this thread, or a thread of the processes that it
    waits for, was ready to run while others had the processor."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._begin_s, self._waited_s = time.monotonic(), self._waited()

    def seconds(self) -> float:
        return time.monotonic() - self._begin_s - (self._waited() - self._waited_s)

    def _waited(self) -> float:
        of_processes_s = sum(map(waited_of_process_s, self._pids))
        return of_processes_s if os.getpid() in self._pids else of_processes_s + waited_s()
