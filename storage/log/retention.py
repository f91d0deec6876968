"""Decides which segments of a partition are due for deletion (pure: no files, no clock), and deletes them.

The rules are those of Kafka's UnifiedLog.deleteOldSegments. Three passes run one after the other, each over the
segments that are left, oldest first, and each ends at the first segment that it must keep:

1. before the log start offset (DeleteRecords moved it): always, also where `cleanup.policy` has no `delete`;
2. `retention.bytes`: while the log without the segment still holds at least that much;
3. `retention.ms`: while the segment's largest timestamp is older than that.

No pass removes a segment that reaches beyond the high watermark (consumers have not seen its end, and the log start
offset must never pass it), nor an empty last segment. The active segment itself may be due: it is rolled before it is
deleted, because a log always has a segment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from gregor.protocol.errors import KafkaError
from gregor.storage.fs.disk_errors import is_full

if TYPE_CHECKING:
    from gregor.config.topic import LogConfig
    from gregor.storage.log.epochs import LeaderEpochs
    from gregor.storage.log.roll import Roller
    from gregor.storage.log.state import LogHealth, LogOffsets, LongWork, Segments
    from gregor.storage.producers.state import ProducerStates


class RetainedSegment(Protocol):
    """The part of a segment that a decision needs. Timestamps are read only of segments that a pass reaches."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def read_largest_timestamp_ms(self, waits_for_disk: bool) -> int:
        """Return the largest timestamp of its records; the modification time of the file when they carry none."""


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
    waits_for_disk: bool = True,
) -> list[DeletionReason]:
    """Return why each of the oldest segments is removed: `result[i]` concerns `segments[i]`, and the others are kept.

    `segments` is in offset order with the active one last. Limits below zero mean "no limit". When the result is as
    long as `segments`, the active segment is removed, too: roll first. Without `waits_for_disk` NotCached may be
    raised.
    """
    reasons: list[DeletionReason] = []
    last = len(segments) - 1

    def remove_while(due: Callable[[int], bool], reason: DeletionReason) -> None:
        index = len(reasons)
        while index <= last:
            if index == last and segments[index].size_bytes == 0:
                return
            upper_offset = segments[index + 1].base_offset if index < last else log_end_offset
            if high_watermark < upper_offset or not due(index):
                return
            reasons.append(reason)
            index += 1

    remove_while(
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

        remove_while(exceeds, DeletionReason.RETENTION_BYTES)

    if retention_ms >= 0:
        remove_while(
            lambda index: now_ms - segments[index].read_largest_timestamp_ms(waits_for_disk) > retention_ms,
            DeletionReason.RETENTION_MS,
        )
    return reasons


class Retention:
    """Deletes the oldest segments of a log."""

    __slots__ = (
        "_config",
        "_epochs",
        "_health",
        "_marked_paths",
        "_offsets",
        "_producers",
        "_roller",
        "_segments",
        "_work",
    )

    def __init__(
        self,
        offsets: LogOffsets,
        segments: Segments,
        health: LogHealth,
        producers: ProducerStates,
        epochs: LeaderEpochs,
        roller: Roller,
        work: LongWork,
        config: LogConfig,
    ) -> None:
        self._offsets = offsets
        self._segments = segments
        self._health = health
        self._producers = producers
        self._epochs = epochs
        self._roller = roller
        self._work = work
        self.configure(config)
        self._marked_paths: list[str] = []
        """Marked as deleted by an attempt that failed half way: the next one returns them."""

    def configure(self, config: LogConfig) -> None:
        self._config = config

    def due_count(self, now_ms: int, *, waits_for_disk: bool = True) -> int:
        """Count the oldest segments that retention no longer lets stay."""
        offsets, config = self._offsets, self._config
        try:
            due = segments_to_delete(
                self._segments.items,
                log_start_offset=offsets.log_start_offset,
                log_end_offset=offsets.log_end_offset,
                high_watermark=offsets.high_watermark,
                now_ms=now_ms,
                retention_ms=config.retention_ms,
                retention_bytes=config.retention_bytes,
                delete_policy=config.delete,
                waits_for_disk=waits_for_disk,
            )
        except OSError as error:
            self._health.fail(error, "cannot read the age of a segment")
        return len(due)

    def advance_log_start_offset(self, offset: int) -> None:
        """Hide everything below the offset (DeleteRecords, or the leader's log start offset). Nothing happens if it
        lies below the log start offset; OFFSET_OUT_OF_RANGE beyond the high watermark."""
        if self._offsets.advance_log_start(offset):
            try:
                self._epochs.truncate_from_start(offset)
            except OSError as error:
                self._health.fail(error, "cannot write the leader epochs")

    def delete_due(self, now_ms: int) -> list[str]:
        """Remove the segments that retention.ms, retention.bytes or the log start offset no longer let stay.

        Their files are renamed to *.deleted; the paths are returned, to be unlinked after file.delete.delay.ms. While
        the log is being compacted nothing is removed.
        """
        return [] if self._work.cleaning else self.delete_segments(self.due_count(now_ms), now_ms)

    def delete_segments(self, count: int, now_ms: int) -> list[str]:
        """Remove the oldest segments, as delete_due does; roll first if that is all of them. After an error some may
        have been removed, and the next call returns their paths as well."""
        segments = self._segments
        if count:
            if count == len(segments.items):
                try:
                    self._roller.roll(now_ms)
                except KafkaError as error:
                    # Without room for a new segment the active one is kept until removing the others has made some.
                    if not is_full(error) or count == 1:
                        raise
                count = min(count, len(segments.items) - 1)
            self.advance_log_start_offset(max(self._offsets.log_start_offset, segments.bases[count]))
            try:
                for _ in range(count):
                    self._marked_paths += self._producers.mark_snapshot_deleted(segments.bases[0])
                    self._marked_paths += segments.mark_first_deleted()
            except OSError as error:
                self._health.fail(error, "cannot delete a segment")
        paths, self._marked_paths = self._marked_paths, []
        return paths
