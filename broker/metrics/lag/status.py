"""The status of a group by its positions over some time: whether it reads, and if not, in which way it does not.

The rules are in essence those of Burrow's evaluation: a partition whose lag was zero at any time of the window is in
order; otherwise it matters whether offsets are committed at all, and whether they advance. Pure: time comes in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

MIN_GAP_MS = 5_000
"""The next sample replaces the latest one while that is nearer to the one before it."""
MAX_SAMPLES = 14
"""The window: a minute at the smallest gap, so that each usual interval of commits fits several times."""
MIN_SPAN_MS = 60_000
"""Less than this is not judged: it would count the pause between two commits."""
NEVER_MS = -1.0
STILL = float("inf")


class Status(IntEnum):
    """The larger, the worse."""

    OK = 0
    REWINDING = 1
    BLOCKED = 2
    STOPPED = 3

    @property
    def label(self) -> str:
        """The name that monitoring knows it by."""
        return LABELS[self]


LABELS = {Status.OK: "ok", Status.REWINDING: "rewinding", Status.BLOCKED: "stalled", Status.STOPPED: "stopped"}
REASONS = {
    Status.OK: "it reads to the end, or its committed offsets advance",
    Status.REWINDING: "a committed offset went back",
    Status.BLOCKED: "it is behind and commits the same offset again and again",
    Status.STOPPED: "it is behind and commits nothing",
}


class Sample(NamedTuple):
    """A position of a group in a partition. `committed_ms` is the time of the commit."""

    at_ms: float
    offset: int
    committed_ms: int
    lag: int


class SampleTimes:
    """The times of the latest samples, which partitions share: `latest_ms`, that of the one `before_ms`, and the
    beginning of the window, `first_ms`."""

    __slots__ = ("_is_near", "_times_ms", "before_ms", "first_ms", "latest_ms")

    def __init__(self) -> None:
        self._times_ms: deque[float] = deque(maxlen=MAX_SAMPLES)
        self._is_near = False
        """Whether the latest time is so near to the one before it that the next one replaces it."""
        self.first_ms = self.before_ms = self.latest_ms = 0.0

    def add(self, at_ms: float) -> None:
        """Begin a sample."""
        times_ms = self._times_ms
        if self._is_near:
            times_ms.pop()
        self._is_near = len(times_ms) > 0 and at_ms - times_ms[-1] < MIN_GAP_MS
        times_ms.append(at_ms)
        self.first_ms, self.before_ms, self.latest_ms = times_ms[0], self.latest_ms, at_ms


class Window:
    """When the position of a group in one partition changed last, and in which way. A sample that is as the one before
    need not be noted."""

    __slots__ = (
        "_advanced_ms",
        "_began_ms",
        "_caught_up_ms",
        "_committed_at_ms",
        "_committed_ms",
        "_offset",
        "_rewound_ms",
    )

    def __init__(self) -> None:
        self._began_ms = NEVER_MS
        """The time of the first sample."""
        self._offset = self._committed_ms = -1
        """Of the latest sample."""
        self._rewound_ms = self._advanced_ms = self._committed_at_ms = NEVER_MS
        """The latest samples that show it."""
        self._caught_up_ms = NEVER_MS
        """The latest sample without lag, STILL if it is the latest of all."""

    def note(self, times: SampleTimes, offset: int, committed_ms: int, lag: int) -> None:
        """Note the sample of the latest time."""
        at_ms = times.latest_ms
        if self._began_ms == NEVER_MS:
            self._began_ms = at_ms
        else:
            if offset < self._offset:
                self._rewound_ms = at_ms
            elif offset > self._offset:
                self._advanced_ms = at_ms
            if committed_ms > self._committed_ms:
                self._committed_at_ms = at_ms
        self._offset, self._committed_ms = offset, committed_ms
        if not lag:
            self._caught_up_ms = STILL
        else:
            self.note_unknown(times)

    def note_unknown(self, times: SampleTimes) -> None:
        """Note that it is not known whether there is a lag at the latest time."""
        if self._caught_up_ms == STILL:
            self._caught_up_ms = times.before_ms

    def status(self, times: SampleTimes, min_span_ms: float = MIN_SPAN_MS) -> Status:
        """Return the status by the samples, OK while they span less."""
        first_ms = self._began_ms
        if first_ms < times.first_ms:
            first_ms = times.first_ms
        if times.latest_ms - first_ms < min_span_ms:
            return Status.OK
        if self._rewound_ms > first_ms:
            return Status.REWINDING
        if self._advanced_ms > first_ms or self._caught_up_ms >= first_ms:
            return Status.OK
        return Status.BLOCKED if self._committed_at_ms > first_ms else Status.STOPPED


def status_of(samples: Iterable[Sample]) -> Status:
    """Return the status by samples in order, of which there is one at least."""
    window, times = Window(), SampleTimes()
    for at_ms, offset, committed_ms, lag in samples:
        times.add(at_ms)
        window.note(times, offset, committed_ms, lag)
    return window.status(times, 0)
