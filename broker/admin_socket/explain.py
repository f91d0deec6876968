"""The time and reason of the next compaction and retention of a log, as sentences for an operator. Pure, but for reads
of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.units import duration, size
from gregor.storage.log.compaction import NEVER_OVERDUE_MS, Bound

if TYPE_CHECKING:
    from gregor.storage.log.compaction import DirtyRange
    from gregor.storage.log.log import Log

_FIRST = {
    Bound.ACTIVE_SEGMENT: "when the active segment has ended",
    Bound.HIGH_WATERMARK: "when it is committed",
    Bound.MIN_LAG: "when it is old enough",
}


def explain_compaction(
    log: Log,
    dirty: DirtyRange,
    *,
    now_ms: int,
    next_check_ms: int,
    enabled: bool,
    running: bool,
    trouble: str | None,
    waits_for_disk: bool = True,
) -> tuple[str, str]:
    """Return (when, why) of the next run over a log of a compacted topic. Raises NotCached only without
    `waits_for_disk`."""
    threshold = log.config.min_cleanable_dirty_ratio
    share = (
        f"{size(dirty.cleanable_bytes)} of {size(dirty.clean_bytes + dirty.cleanable_bytes)} that may be compacted are "
        f"dirty, a ratio of {dirty.ratio:.2f}; it is due above {threshold:g}"
    )
    bound = f"{dirty.bound.value}{_bound_details(log, dirty, now_ms, waits_for_disk)}"
    if running:
        return "now", "a worker is at it"
    if trouble is not None:
        return "when it is ordered", f"the last attempt failed: {trouble}"
    if not enabled:
        return "when it is ordered", "log.cleaner.enable is false or log.cleaner.threads is 0"
    if dirty.is_due(threshold):
        if dirty.overdue_ms:
            share = f"max.compaction.lag.ms was exceeded {duration(dirty.overdue_ms)} ago; {share}"
        return f"in at most {duration(max(0, next_check_ms - now_ms))}", share
    if not dirty.cleanable_bytes and (dirty.overdue_ms or not dirty.clean_bytes):
        return _FIRST[dirty.bound], f"nothing may be compacted yet: {bound}"
    whens = []
    if threshold < 1:
        missing = threshold / (1 - threshold) * dirty.clean_bytes - dirty.cleanable_bytes
        whens.append(f"when {size(max(missing, 1))} more are dirty")
    if log.config.max_compaction_lag_ms < NEVER_OVERDUE_MS:
        whens.append("when a dirty record exceeds max.compaction.lag.ms")
    return " or ".join(whens) or "when it is ordered", f"{share}; {bound}"


def _bound_details(log: Log, dirty: DirtyRange, now_ms: int, waits_for_disk: bool) -> str:
    config = log.config
    if dirty.bound is Bound.ACTIVE_SEGMENT:
        active = log.segments[-1]
        if not active.size_bytes:
            return " and is empty"
        first_timestamp = active.read_first_timestamp(waits_for_disk)
        if first_timestamp >= 0:
            left_ms = first_timestamp + config.max_segment_ms - active.roll_jitter_ms - now_ms
            roll = f"with the first record after {duration(left_ms)}" if left_ms > 0 else "with the next record"
        else:
            roll = f"after {duration(config.max_segment_ms)}"
        return f": it holds {size(active.size_bytes)} and ends at {size(config.segment_bytes)} or {roll}"
    if dirty.bound is Bound.MIN_LAG:
        for segment in log.segments:
            if segment.base_offset >= dirty.first_uncleanable_offset:
                largest_ms = segment.read_largest_timestamp_ms(waits_for_disk)
                left_ms = largest_ms + config.min_compaction_lag_ms - now_ms
                return f": the segment at offset {segment.base_offset} for another {duration(max(left_ms, 0))}"
    return f": offset {dirty.first_uncleanable_offset}"


def explain_retention(log: Log, *, now_ms: int, next_check_ms: int, waits_for_disk: bool = True) -> tuple[str, str]:
    """Return (when, why) the next segment is removed. Raises NotCached only without `waits_for_disk`."""
    config = log.config
    check = f"in at most {duration(max(0, next_check_ms - now_ms))}"
    oldest = log.segments[0]
    one_segment = log.segments_count == 1
    if not one_segment and log.segments[1].base_offset <= log.log_start_offset:
        return check, f"the oldest segment lies before the log start offset {log.log_start_offset}"
    if not config.delete:
        return "never", "cleanup.policy has no 'delete': only what lies before the log start offset goes"
    if not log.size_bytes:
        return "when there is something", "the log is empty"
    reasons = []
    left_ms = None
    if config.retention_ms >= 0:
        age_ms = now_ms - oldest.read_largest_timestamp_ms(waits_for_disk)
        left_ms = config.retention_ms - age_ms
        reasons.append(
            f"the latest record of the oldest segment ({size(oldest.size_bytes)} from offset {oldest.base_offset}) is "
            f"{duration(max(age_ms, 0))} old, retention.ms allows {duration(config.retention_ms)}"
        )
    else:
        reasons.append("retention.ms sets no limit")
    excess_bytes = None
    if config.retention_bytes >= 0:
        excess_bytes = log.size_bytes - config.retention_bytes
        reasons.append(f"the log holds {size(log.size_bytes)}, retention.bytes is {size(config.retention_bytes)}")
    else:
        reasons.append("retention.bytes sets no limit")
    why = "; ".join(reasons)
    if (left_ms is not None and left_ms < 0) or (excess_bytes is not None and excess_bytes >= oldest.size_bytes):
        if log.work.cleaning:
            return "after the compaction that is under way", why
        return check, why
    whens = []
    if left_ms is not None:
        whens.append(f"in {duration(left_ms)}")
    if excess_bytes is not None:
        whens.append(f"when {size(oldest.size_bytes - excess_bytes)} more are written")
    return " or ".join(whens) or "never", why
