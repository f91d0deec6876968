"""Retention decisions, by example and against a slow twin that deletes one segment at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.storage.log.retention import DeletionReason, segments_to_delete

START, SIZE, TIME = DeletionReason.LOG_START_OFFSET, DeletionReason.RETENTION_BYTES, DeletionReason.RETENTION_MS


@dataclass
class Seg:
    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int

    def read_largest_timestamp_ms(self, waits_for_disk: bool) -> int:
        return self.largest_timestamp_ms


def decide(segments: list[Seg], log_end_offset: int, **rules: Any) -> list[DeletionReason]:
    defaults: dict[str, Any] = {
        "log_start_offset": 0,
        "high_watermark": log_end_offset,
        "now_ms": 10_000,
        "retention_ms": -1,
        "retention_bytes": -1,
        "delete_policy": True,
    }
    return segments_to_delete(segments, log_end_offset=log_end_offset, **(defaults | rules))


def three() -> list[Seg]:
    return [Seg(0, 100, 1_000), Seg(10, 100, 2_000), Seg(20, 100, 3_000)]


def test_no_limits_keep_everything() -> None:
    assert decide(three(), 30) == []


def test_time_takes_the_oldest_segments_past_the_limit() -> None:
    assert decide(three(), 30, now_ms=4_001, retention_ms=2_000) == [TIME, TIME]


def test_a_segment_exactly_as_old_as_the_limit_stays() -> None:
    assert decide(three(), 30, now_ms=3_000, retention_ms=2_000) == []


def test_time_stops_at_the_first_young_segment() -> None:
    segments = [Seg(0, 100, 9_000), Seg(10, 100, 1), Seg(20, 100, 1)]
    assert decide(segments, 30, now_ms=10_000, retention_ms=2_000) == []


def test_all_expired_includes_the_active_segment() -> None:
    assert decide(three(), 30, now_ms=60_000, retention_ms=2_000) == [TIME, TIME, TIME]


def test_an_empty_active_segment_is_never_deleted() -> None:
    segments = [*three()[:2], Seg(20, 0, 0)]
    assert decide(segments, 20, now_ms=60_000, retention_ms=2_000) == [TIME, TIME]


def test_size_keeps_at_least_the_limit() -> None:
    assert decide(three(), 30, retention_bytes=200) == [SIZE]
    assert decide(three(), 30, retention_bytes=201) == []
    assert decide(three(), 30, retention_bytes=0) == [SIZE, SIZE, SIZE]
    assert decide(three(), 30, retention_bytes=300) == []


def test_size_does_not_skip_a_large_old_segment() -> None:
    segments = [Seg(0, 500, 1), Seg(10, 10, 1), Seg(20, 10, 1)]
    assert decide(segments, 30, retention_bytes=400) == []


def test_log_start_offset_applies_to_compacted_topics_too() -> None:
    rules = {"log_start_offset": 20, "retention_ms": 0, "retention_bytes": 0, "delete_policy": False}
    assert decide(three(), 30, **rules) == [START, START]


def test_log_start_offset_inside_a_segment_keeps_it() -> None:
    assert decide(three(), 30, log_start_offset=19) == [START]


def test_log_start_offset_at_the_end_keeps_the_active_segment() -> None:
    assert decide(three(), 30, log_start_offset=30) == [START, START]


def test_nothing_beyond_the_high_watermark_goes() -> None:
    assert decide(three(), 30, high_watermark=19, retention_ms=0) == [TIME]
    assert decide(three(), 30, high_watermark=29, retention_bytes=0) == [SIZE, SIZE]


def test_passes_count_what_earlier_ones_left() -> None:
    # After the first segment is gone the log holds 200 bytes: no size breach is left, then one more is deleted by time.
    rules = {"log_start_offset": 10, "retention_bytes": 200, "retention_ms": 2_000, "now_ms": 4_500}
    assert decide(three(), 30, **rules) == [START, TIME]


def test_timestamps_are_asked_only_where_needed() -> None:
    class Untouchable(Seg):
        def read_largest_timestamp_ms(self, waits_for_disk: bool) -> int:
            raise AssertionError("a lazily opened index was opened")

    segments = [Seg(0, 10, 9_999), Untouchable(10, 10, 0), Untouchable(20, 10, 0)]
    assert decide(segments, 30, retention_ms=1_000) == []


def one_at_a_time(segments: list[Seg], log_end_offset: int, rules: dict[str, Any]) -> int:
    """A slow reference implementation: each pass checks the current log, and removes its first segment or ends."""
    kept = list(segments)

    def first_may_go() -> bool:
        if not kept or (len(kept) == 1 and kept[0].size_bytes == 0):
            return False
        upper_offset = kept[1].base_offset if len(kept) > 1 else log_end_offset
        return bool(rules["high_watermark"] >= upper_offset)

    while first_may_go() and len(kept) > 1 and kept[1].base_offset <= rules["log_start_offset"]:
        kept.pop(0)
    if rules["delete_policy"]:
        limit = rules["retention_bytes"]
        while limit >= 0 and first_may_go() and sum(s.size_bytes for s in kept[1:]) >= limit:
            kept.pop(0)
        limit = rules["retention_ms"]
        while limit >= 0 and first_may_go() and kept[0].largest_timestamp_ms < rules["now_ms"] - limit:
            kept.pop(0)
    return len(segments) - len(kept)


@settings(max_examples=80, deadline=None)
@given(
    parts=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 30), st.integers(0, 40)), min_size=1, max_size=6),
    high_watermark=st.integers(0, 30),
    log_start_offset=st.integers(0, 30),
    retention_ms=st.integers(-1, 40),
    retention_bytes=st.integers(-1, 120),
    delete_policy=st.booleans(),
)
def test_agrees_with_the_slow_twin(parts: list[tuple[int, int, int]], **rules: Any) -> None:
    segments, offset = [], 0
    for records, size_bytes, timestamp_ms in parts:
        segments.append(Seg(offset, size_bytes, timestamp_ms))
        offset += records
    rules["now_ms"] = 40
    assert len(decide(segments, offset, **rules)) == one_at_a_time(segments, offset, rules)
