"""The status of a group by samples of its positions."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from gregor.broker.metrics.lag.status import (
    MAX_SAMPLES,
    MIN_GAP_MS,
    MIN_SPAN_MS,
    Sample,
    SampleTimes,
    Status,
    Window,
    status_of,
)

STEP_MS = 10_000


class Judged:
    """A window with times of its own."""

    def __init__(self) -> None:
        self._times = SampleTimes()
        self._window = Window()

    def add(self, sample: Sample, *, noted: bool = True) -> None:
        self._times.add(sample.at_ms)
        if noted:
            self._window.note(self._times, sample.offset, sample.committed_ms, sample.lag)

    def status(self) -> Status:
        return self._window.status(self._times)


class SlowTwin:
    """Keeps all samples of the window, and judges by them."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._kept: list[Sample] = []

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)
        if len(self._kept) > 1 and self._kept[-1].at_ms - self._kept[-2].at_ms < MIN_GAP_MS:
            self._kept.pop()
        self._kept = [*self._kept, sample][-MAX_SAMPLES:]

    def status(self) -> Status:
        first, last = self._kept[0], self._kept[-1]
        if last.at_ms - first.at_ms < MIN_SPAN_MS:
            return Status.OK
        seen = [sample for sample in self._samples if sample.at_ms >= first.at_ms]
        if any(after.offset < before.offset for before, after in pairwise(seen)):
            return Status.REWINDING
        if last.offset > first.offset or any(not sample.lag for sample in seen):
            return Status.OK
        return Status.BLOCKED if last.committed_ms > first.committed_ms else Status.STOPPED


@pytest.mark.parametrize("seed", range(8))
def test_a_window_without_its_samples_judges_as_one_with_them(seed: int) -> None:
    chosen = random.Random(seed)
    judged, twin, found = Judged(), SlowTwin(), set[Status]()
    sample = before = Sample(0, 100, 1, 5)
    for _ in range(300):
        at_ms = sample.at_ms + chosen.choice([500, 3000, 5000, 5000, 20_000])
        action = chosen.choices(
            ["none", "advance", "rewind", "commit", "catch up", "fall behind"], [40, 1, 1, 1, 1, 3]
        )[0]
        committed_ms = sample.committed_ms + (action in ("advance", "rewind", "commit"))
        offset = sample.offset + {"advance": 3, "rewind": -1}.get(action, 0)
        lag = {"catch up": 0, "fall behind": 5}.get(action, sample.lag)
        before, sample = sample, Sample(at_ms, offset, committed_ms, lag)
        judged.add(sample, noted=sample[1:] != before[1:] or not found)
        twin.add(sample)
        assert judged.status() is twin.status()
        found.add(twin.status())
    assert len(found) >= 3


def samples(*positions: tuple[int, int, int]) -> list[Sample]:
    """(committed offset, time of the commit, lag) each STEP_MS."""
    return [Sample(number * STEP_MS, *position) for number, position in enumerate(positions)]


@pytest.mark.parametrize(
    ("positions", "status"),
    [
        ([(5, 1, 3), (6, 2, 9), (7, 3, 20)], Status.OK),  # it advances, though others write faster
        ([(5, 1, 3), (5, 1, 3), (5, 1, 3)], Status.STOPPED),
        ([(5, 1, 3), (5, 1, 7), (5, 1, 9)], Status.STOPPED),
        ([(5, 1, 3), (5, 2, 3), (5, 3, 4)], Status.BLOCKED),
        ([(5, 1, 0), (5, 1, 0), (5, 1, 0)], Status.OK),  # nothing to read
        ([(5, 1, 0), (5, 1, 1), (5, 1, 2)], Status.OK),  # it was at the end within the window
        ([(5, 1, 3), (9, 2, 3), (7, 3, 5)], Status.REWINDING),
        ([(9, 1, 0), (7, 2, 2), (9, 3, 0)], Status.REWINDING),
    ],
)
def test_status(positions: list[tuple[int, int, int]], status: Status) -> None:
    assert status_of(samples(*positions)) is status


def test_less_than_a_minute_is_not_judged() -> None:
    window = Judged()
    for number in range(MIN_SPAN_MS // STEP_MS):
        window.add(Sample(number * STEP_MS, 5, 1, 3))
        assert window.status() is Status.OK
    window.add(Sample(MIN_SPAN_MS, 5, 1, 3))
    assert window.status() is Status.STOPPED


def test_frequent_samples_do_not_shorten_the_window() -> None:
    window = Judged()
    for at_ms in range(0, MIN_SPAN_MS + 1, 500):
        window.add(Sample(at_ms, 5, 1, 3))
    assert window.status() is Status.STOPPED
    window.add(Sample(MIN_SPAN_MS + 500, 6, 2, 2))
    assert window.status() is Status.OK, "the latest sample counts, too"


def test_old_samples_leave_the_window() -> None:
    window = Judged()
    window.add(Sample(0, 9, 1, 0))
    window.add(Sample(MIN_GAP_MS, 5, 2, 3))
    for number in range(2, MAX_SAMPLES):
        window.add(Sample(number * MIN_GAP_MS, 5, 2, 3))
    assert window.status() is Status.REWINDING
    window.add(Sample(MAX_SAMPLES * MIN_GAP_MS, 5, 2, 3))
    assert window.status() is Status.STOPPED


def test_the_worst_is_the_largest() -> None:
    assert max(Status.OK, Status.STOPPED, Status.BLOCKED) is Status.STOPPED
    assert [status.label for status in Status] == ["ok", "rewinding", "stalled", "stopped"]
