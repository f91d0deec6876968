"""Decides which logs are compacted, how far, and which segments are merged. Pure: no files, no clock.

A log has a clean part, below its first dirty offset (where the last run ended), and a dirty part. A run reads the dirty
part up to the first offset that must not be cleaned yet, and rewrites all segments below that:

    | clean segments ....... | dirty segments ........ | not cleanable yet: reaches beyond the high watermark, holds
    ^ log start              ^ first dirty             ^ first uncleanable      records younger than
                                                                 min.compaction.lag.ms, or is the active segment

A run is due when the dirty bytes that can be cleaned are more than min.cleanable.dirty.ratio of all bytes below the
first uncleanable offset, or when a dirty record is older than max.compaction.lag.ms. Of several logs that are due the
one with the highest ratio comes first. (Kafka's LogCleanerManager, LogToClean and Cleaner.groupSegmentsBySize.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from gregor.storage.segment.batches import MAX_RELATIVE_OFFSET

NEVER_OVERDUE_MS = 2**63 - 1
"""max.compaction.lag.ms by default: no limit."""

GROUP_SEGMENTS = 64
"""At most this many segments are merged: replacing them is one step of the event loop. (Kafka has no such limit.)"""


class CompactedSegment(Protocol):
    """The part of a segment that a decision needs. Timestamps are read only where a lag is configured."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def read_first_timestamp(self, waits_for_disk: bool) -> int:
        """Return the timestamp of its first batch; -1 without one."""

    def read_largest_timestamp_ms(self, waits_for_disk: bool) -> int: ...


class Bound(Enum):
    """The reason why a run does not reach further."""

    ACTIVE_SEGMENT = "the active segment is never compacted"
    HIGH_WATERMARK = "what follows is not on all replicas in sync, or its transaction is open"
    MIN_LAG = "what follows is younger than min.compaction.lag.ms"


class DirtyRange(NamedTuple):
    """How far a log is compacted, and how far it can be."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    """The base offset of a segment, unless it equals the first dirty offset."""
    clean_bytes: int
    """Of segments that begin below the first dirty offset."""
    cleanable_bytes: int
    bound: Bound
    overdue_ms: int
    """How long the oldest dirty record has been older than max.compaction.lag.ms; 0 if it is not."""
    restarts: bool
    """The first dirty offset of the checkpoint was invalid: below the log start offset, or beyond the log end
    offset."""

    @property
    def ratio(self) -> float:
        """Share of the bytes below the first uncleanable offset that are dirty."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_dirty_ratio: float) -> bool:
        return self.cleanable_bytes > 0 and (self.overdue_ms > 0 or self.ratio > min_dirty_ratio)


def dirty_range(
    segments: Sequence[CompactedSegment],
    *,
    cleaned_offset: int | None,
    log_start_offset: int,
    log_end_offset: int,
    stable_offset: int,
    min_lag_ms: int,
    max_lag_ms: int,
    now_ms: int,
    waits_for_disk: bool = True,
) -> DirtyRange:
    """Determine the dirty range. `segments` is in offset order with the active one last. `cleaned_offset` is the
    checkpoint, None without one; `stable_offset` the high watermark, or the last stable offset if that is lower.
    Without `waits_for_disk` NotCached may be raised."""
    restarts = cleaned_offset is not None and not log_start_offset <= cleaned_offset <= log_end_offset
    first_dirty = log_start_offset if cleaned_offset is None or restarts else cleaned_offset
    bases = [segment.base_offset for segment in segments]
    active = len(segments) - 1

    first_dirty_index = _holding(bases, first_dirty)
    bound = Bound.ACTIVE_SEGMENT
    uncleanable = bases[active]
    if stable_offset < uncleanable:
        bound, uncleanable = Bound.HIGH_WATERMARK, stable_offset
    if min_lag_ms > 0:
        for segment in segments[first_dirty_index:active]:
            if segment.base_offset >= uncleanable:
                break
            if segment.read_largest_timestamp_ms(waits_for_disk) > now_ms - min_lag_ms:
                bound, uncleanable = Bound.MIN_LAG, segment.base_offset
                break
    # Whole segments only.
    end_index = _holding(bases, max(uncleanable, first_dirty))
    first_uncleanable = bases[end_index]
    start_index = min(first_dirty_index, end_index)
    cleanable_bytes = sum(segment.size_bytes for segment in segments[start_index:end_index])
    clean_bytes = sum(segment.size_bytes for segment in segments[: bisect_right(bases, first_dirty - 1)])

    overdue_ms = 0
    if max_lag_ms < NEVER_OVERDUE_MS:
        stamps = [segment.read_first_timestamp(waits_for_disk) for segment in segments[first_dirty_index:active]]
        oldest = min((stamp for stamp in stamps if stamp > 0), default=now_ms)
        overdue_ms = max(0, now_ms - max_lag_ms - oldest)
    return DirtyRange(
        first_dirty, max(first_dirty, first_uncleanable), clean_bytes, cleanable_bytes, bound, overdue_ms, restarts
    )


class SourceSegment(NamedTuple):
    """A segment as a run finds it."""

    base_offset: int
    size_bytes: int
    offset_index_bytes: int
    time_index_bytes: int


def group_segments(
    segments: Sequence[SourceSegment], *, segment_bytes: int, index_bytes: int, first_uncleanable_offset: int
) -> list[list[SourceSegment]]:
    """Group the neighbours that are merged into one segment: as many as stay below the limits of a segment and its
    indexes before any record is removed from them."""
    groups: list[list[SourceSegment]] = []
    for position, segment in enumerate(segments):
        following = segments[position + 1].base_offset if position + 1 < len(segments) else first_uncleanable_offset
        if groups:
            group = groups[-1]
            if (
                len(group) < GROUP_SEGMENTS
                and sum(one.size_bytes for one in group) + segment.size_bytes <= segment_bytes
                and sum(one.offset_index_bytes for one in group) + segment.offset_index_bytes <= index_bytes
                and sum(one.time_index_bytes for one in group) + segment.time_index_bytes <= index_bytes
                # Index entries hold offsets relative to the first segment's. An empty segment has none.
                and (segment.size_bytes == 0 or following - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET)
            ):
                group.append(segment)
                continue
        groups.append([segment])
    return groups


def _holding(bases: Sequence[int], offset: int) -> int:
    """Return the index of the segment that the offset lies in; 0 for offsets below the first."""
    return max(0, bisect_right(bases, offset) - 1)
