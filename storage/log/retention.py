"""Which of a partition's segments are due for deletion. Pure: no files, no clock.

The rules are those of Kafka's UnifiedLog.deleteOldSegments. Three passes run one after the other, each of them
over what the one before it has left, oldest segment first, and each ends at the first segment it must keep:

1. before the log start offset (DeleteRecords moved it): always, also where `cleanup.policy` has no `delete`;
2. `retention.bytes`: while the log without the segment still holds at least that much;
3. `retention.ms`: while the segment's largest timestamp is older than that.

No pass takes a segment that reaches beyond the high watermark (consumers have not seen its end, and the log start
offset must never pass it), nor an empty last segment. The active segment itself may be due; whoever deletes then
rolls first, because a log always has a segment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol


class RetainedSegment(Protocol):
    """What a decision needs to know of a segment. Only segments that a pass reaches are asked for a timestamp."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def largest_timestamp_ms(self) -> int:
        """Largest timestamp of its records; the file's modification time when they carry none."""


class DeletionReason(Enum):
    LOG_START_OFFSET = "lies before the log start offset"
    RETENTION_BYTES = "exceeds retention.bytes"
    RETENTION_MS = "is older than retention.ms"


def segments_to_delete(
    segments: Sequence[RetainedSegment],
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
    delete_policy: bool,
) -> list[DeletionReason]:
    """Why each of the oldest segments goes: `result[i]` concerns `segments[i]`, and the rest stays.

    `segments` is in offset order with the active one last. Limits below zero mean "no limit". When the result is as
    long as `segments`, the active segment goes too: roll first.
    """
    reasons: list[DeletionReason] = []
    last = len(segments) - 1

    def take_while(due: Callable[[int], bool], reason: DeletionReason) -> None:
        index = len(reasons)
        while index <= last:
            if index == last and segments[index].size_bytes == 0:
                return
            upper_offset = segments[index + 1].base_offset if index < last else log_end_offset
            if high_watermark < upper_offset or not due(index):
                return
            reasons.append(reason)
            index += 1

    take_while(
        lambda index: index < last and segments[index + 1].base_offset <= log_start_offset,
        DeletionReason.LOG_START_OFFSET,
    )
    if not delete_policy:
        return reasons

    if retention_bytes >= 0:
        excess_bytes = sum(segment.size_bytes for segment in segments[len(reasons) :]) - retention_bytes

        def exceeds(index: int) -> bool:
            nonlocal excess_bytes
            size_bytes = segments[index].size_bytes
            if size_bytes > excess_bytes:
                return False
            excess_bytes -= size_bytes
            return True

        take_while(exceeds, DeletionReason.RETENTION_BYTES)

    if retention_ms >= 0:
        take_while(
            lambda index: now_ms - segments[index].largest_timestamp_ms > retention_ms,
            DeletionReason.RETENTION_MS,
        )
    return reasons
