"""The status of a group by samples of its positions."""

from __future__ import annotations

import pytest

from gregor.broker.metrics.lag.status import MAX_SAMPLES, MIN_GAP_MS, MIN_SPAN_MS, Sample, Status, Window, status_of

STEP_MS = 10_000


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
    window = Window()
    for number in range(MIN_SPAN_MS // STEP_MS):
        window.add(Sample(number * STEP_MS, 5, 1, 3))
        assert window.status() is Status.OK
    window.add(Sample(MIN_SPAN_MS, 5, 1, 3))
    assert window.status() is Status.STOPPED


def test_frequent_samples_do_not_shorten_the_window() -> None:
    window = Window()
    for at_ms in range(0, MIN_SPAN_MS + 1, 500):
        window.add(Sample(at_ms, 5, 1, 3))
    assert window.status() is Status.STOPPED
    window.add(Sample(MIN_SPAN_MS + 500, 6, 2, 2))
    assert window.status() is Status.OK, "the latest sample counts, too"


def test_old_samples_leave_the_window() -> None:
    window = Window()
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
