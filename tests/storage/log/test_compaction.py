"""Which part of which log is compacted: Kafka's rules, one at a time, and all together beside a slow twin."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.storage.log.compaction import (
    GROUP_SEGMENTS,
    NEVER_OVERDUE_MS,
    Bound,
    DirtyRange,
    SourceSegment,
    dirty_range,
    group_segments,
)

NOW_MS = 1_000_000


class FakeSegment(NamedTuple):
    base_offset: int
    size_bytes: int = 100
    first_timestamp: int = 1000
    largest_timestamp_ms: int = 2000

    def read_first_timestamp(self, waits_for_disk: bool) -> int:
        return self.first_timestamp

    def read_largest_timestamp_ms(self, waits_for_disk: bool) -> int:
        return self.largest_timestamp_ms


LOG = [FakeSegment(0), FakeSegment(10), FakeSegment(20), FakeSegment(30), FakeSegment(40)]


def looked_at(segments: list[FakeSegment] = LOG, **changes: Any) -> DirtyRange:
    arguments: dict[str, Any] = {
        "cleaned_offset": None,
        "log_start_offset": 0,
        "log_end_offset": 50,
        "stable_offset": 50,
        "min_lag_ms": 0,
        "max_lag_ms": NEVER_OVERDUE_MS,
        "now_ms": NOW_MS,
        **changes,
    }
    return dirty_range(segments, **arguments)


def test_a_log_that_was_never_compacted_is_dirty_up_to_the_active_segment() -> None:
    found = looked_at()
    assert found == DirtyRange(0, 40, 0, 400, Bound.ACTIVE_SEGMENT, 0, False)
    assert found.ratio == 1
    assert found.is_due(0.99)
    assert not found.is_due(1.0), "the ratio must be more than the setting"


def test_what_was_compacted_counts_as_clean() -> None:
    found = looked_at(cleaned_offset=20)
    assert found == DirtyRange(20, 40, 200, 200, Bound.ACTIVE_SEGMENT, 0, False)
    assert found.ratio == 0.5
    assert not found.is_due(0.5)
    assert found.is_due(0.49)


def test_a_run_that_ended_inside_a_segment() -> None:
    """Its map was full. As in Kafka the segment counts on both sides."""
    assert looked_at(cleaned_offset=15)[:4] == (15, 40, 200, 300)


def test_nothing_dirty() -> None:
    found = looked_at(cleaned_offset=40)
    assert found[:4] == (40, 40, 400, 0)
    assert not found.is_due(0)


def test_an_empty_log() -> None:
    found = looked_at([FakeSegment(7, 0)], log_start_offset=7, log_end_offset=7, stable_offset=7)
    assert found[:4] == (7, 7, 0, 0)
    assert found.ratio == 0
    assert not found.is_due(0)


def test_the_high_watermark_bounds_it() -> None:
    assert looked_at(stable_offset=25)[1:5] == (20, 0, 200, Bound.HIGH_WATERMARK)
    assert looked_at(stable_offset=20)[1:5] == (20, 0, 200, Bound.HIGH_WATERMARK)
    assert looked_at(stable_offset=40).bound is Bound.ACTIVE_SEGMENT


def test_min_lag_goes_by_a_segments_latest_record() -> None:
    young = [*LOG[:2], FakeSegment(20, largest_timestamp_ms=NOW_MS - 50), *LOG[3:]]
    assert looked_at(young, min_lag_ms=51)[1:5] == (20, 0, 200, Bound.MIN_LAG)
    assert looked_at(young, min_lag_ms=50).first_uncleanable_offset == 40
    assert looked_at(young, min_lag_ms=51, stable_offset=15).bound is Bound.HIGH_WATERMARK
    # Clean segments are not examined.
    assert looked_at(young, min_lag_ms=51, cleaned_offset=30).first_uncleanable_offset == 40


def test_max_lag_makes_it_due_whatever_the_ratio() -> None:
    found = looked_at(cleaned_offset=30, max_lag_ms=NOW_MS - 1001)
    assert (found.overdue_ms, found.cleanable_bytes, found.ratio) == (1, 100, 0.25)
    assert found.is_due(0.5)
    assert not looked_at(cleaned_offset=30, max_lag_ms=NOW_MS - 1000).is_due(0.5)
    # Overdue, but nothing that may be compacted.
    assert not looked_at(stable_offset=5, max_lag_ms=1).is_due(0.5)


def test_segments_without_timestamps_are_never_overdue() -> None:
    assert looked_at([FakeSegment(0, first_timestamp=-1), FakeSegment(10)], max_lag_ms=1).overdue_ms == 0


@pytest.mark.parametrize("cleaned_offset", [4, 51])
def test_a_checkpoint_outside_of_the_log_starts_over(cleaned_offset: int) -> None:
    found = looked_at(LOG, cleaned_offset=cleaned_offset, log_start_offset=5)
    assert found.restarts
    assert found.first_dirty_offset == 5


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5), st.integers(0, 20)), min_size=1, max_size=8),
    st.integers(0, 80),
    st.integers(0, 80) | st.none(),
    st.integers(0, 80),
    st.integers(0, 20),
)
def test_beside_a_slow_twin(
    shape: list[tuple[int, int, int]], start: int, cleaned: int | None, stable: int, min_lag_ms: int
) -> None:
    base, segments = 0, []
    for span, size_bytes, timestamp in shape:
        segments.append(FakeSegment(base, size_bytes, 1, timestamp))
        base += span
    log_end = base
    start = min(start, log_end)
    found = dirty_range(
        segments, cleaned_offset=cleaned, log_start_offset=start, log_end_offset=log_end, stable_offset=stable,
        min_lag_ms=min_lag_ms, max_lag_ms=NEVER_OVERDUE_MS, now_ms=20,
    )  # fmt: skip
    first_dirty = cleaned if cleaned is not None and start <= cleaned <= log_end else start
    # A segment may be cleaned when it, and all before it, end below every bound.
    ends = [one.base_offset for one in segments[1:]]
    allowed = 0
    for segment, end in zip(segments, ends, strict=False):
        too_young = end > first_dirty and min_lag_ms > 0 and segment.largest_timestamp_ms > 20 - min_lag_ms
        if end > stable or too_young:
            break
        allowed += 1
    expected = max(first_dirty, segments[allowed].base_offset)
    assert found.first_uncleanable_offset == expected
    assert found.first_dirty_offset == first_dirty
    assert found.restarts == (cleaned is not None and first_dirty != cleaned)
    if expected > first_dirty:
        dirty = [one for one, end in zip(segments, ends, strict=False) if end > first_dirty and end <= expected]
        assert found.cleanable_bytes == sum(one.size_bytes for one in dirty)


def sources(*sizes: int, index: int = 8, step: int = 10) -> list[SourceSegment]:
    return [SourceSegment(at * step, size, index, 12) for at, size in enumerate(sizes)]


def grouped(segments: list[SourceSegment], segment_bytes: int = 100, index_bytes: int = 10**6) -> list[list[int]]:
    groups = group_segments(
        segments, segment_bytes=segment_bytes, index_bytes=index_bytes,
        first_uncleanable_offset=segments[-1].base_offset + 1000 if segments else 0,
    )  # fmt: skip
    return [[one.size_bytes for one in group] for group in groups]


def test_neighbours_become_one_up_to_the_size_of_a_segment() -> None:
    assert grouped(sources(40, 60, 1, 99, 100, 1)) == [[40, 60], [1, 99], [100], [1]]
    assert grouped(sources(300, 10)) == [[300], [10]]
    assert grouped([]) == []


def test_and_of_an_index() -> None:
    assert grouped(sources(1, 1, 1, 1, index=30), index_bytes=60) == [[1, 1], [1, 1]]
    assert grouped(sources(1, 1, 1, 1, 1, 1, index=0), index_bytes=36) == [[1, 1, 1], [1, 1, 1]]


def test_and_of_relative_offsets() -> None:
    far = sources(1, 1, 1, step=2**30)
    assert grouped(far) == [[1, 1], [1]]
    assert grouped([*far[:2], far[2]._replace(size_bytes=0)]) == [[1, 1, 0]], "an empty segment has no index entries"


def test_and_of_what_one_step_can_replace() -> None:
    assert [len(group) for group in grouped(sources(*[1] * (GROUP_SEGMENTS + 1)))] == [GROUP_SEGMENTS, 1]
