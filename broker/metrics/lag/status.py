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


class Window:
    """The latest samples of one partition."""

    __slots__ = ("_caught_up_ms", "_is_near", "_rewound_ms", "_samples")

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)
        self._rewound_ms = self._caught_up_ms = -1.0
        """Of the latest samples that show it; -1: of none."""
        self._is_near = False
        """Whether the latest sample is so near to the one before it that the next one replaces it."""

    def add(self, sample: Sample) -> None:
        samples = self._samples
        if samples:
            latest = samples[-1]
            if sample.offset < latest.offset:
                self._rewound_ms = sample.at_ms
            if self._is_near:
                samples.pop()
                self._is_near = len(samples) > 0 and sample.at_ms - samples[-1].at_ms < MIN_GAP_MS
            else:
                self._is_near = sample.at_ms - latest.at_ms < MIN_GAP_MS
        if not sample.lag:
            self._caught_up_ms = sample.at_ms
        samples.append(sample)

    def status(self, min_span_ms: float = MIN_SPAN_MS) -> Status:
        """Return the status by the samples, OK while they span less."""
        first, last = self._samples[0], self._samples[-1]
        if last.at_ms - first.at_ms < min_span_ms:
            return Status.OK
        if self._rewound_ms > first.at_ms:
            return Status.REWINDING
        if last.offset > first.offset or self._caught_up_ms >= first.at_ms:
            return Status.OK
        return Status.BLOCKED if last.committed_ms > first.committed_ms else Status.STOPPED


def status_of(samples: Iterable[Sample]) -> Status:
    """Return the status by samples in order, of which there is one at least."""
    window = Window()
    for sample in samples:
        window.add(sample)
    return window.status(0)
