"""The status of a group by its positions over some time: whether it reads, and if not, in which way it does not.

The rules are in essence those of Burrow's evaluation: a partition whose lag was zero at any time of the window is in
order; otherwise it matters whether offsets are committed at all, and whether they advance. Pure: time comes in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import pairwise
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

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)

    def add(self, sample: Sample) -> None:
        samples = self._samples
        if len(samples) > 1 and samples[-1].at_ms - samples[-2].at_ms < MIN_GAP_MS:
            samples.pop()
        samples.append(sample)

    def status(self) -> Status:
        samples = self._samples
        if samples[-1].at_ms - samples[0].at_ms < MIN_SPAN_MS:
            return Status.OK
        return status_of(samples)


def status_of(samples: Iterable[Sample]) -> Status:
    """Return the status by samples in order, of which there are two at least."""
    listed: Sequence[Sample] = list(samples)
    first, last = listed[0], listed[-1]
    if any(after.offset < before.offset for before, after in pairwise(listed)):
        return Status.REWINDING
    if last.offset > first.offset or not all(sample.lag for sample in listed):
        return Status.OK
    return Status.BLOCKED if last.committed_ms > first.committed_ms else Status.STOPPED
