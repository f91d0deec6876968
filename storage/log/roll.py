"""The end of the active segment, and the beginning of the next one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.storage.fs.disk_errors import is_full
from gregor.storage.segment.batches import MAX_RELATIVE_OFFSET
from gregor.storage.segment.index import OffsetIndex, TimeIndex

if TYPE_CHECKING:
    from gregor.config.topic import LogConfig
    from gregor.storage.log.flush import Flusher
    from gregor.storage.log.state import AppendLimits, LogHealth, LogOffsets, Segments
    from gregor.storage.producers.state import ProducerStates
    from gregor.storage.segment.segment import Segment


class Roller:
    """Keeps the append limits of a log, and rolls its active segment."""

    __slots__ = ("_config", "_flusher", "_health", "_limits", "_offsets", "_producers", "_segments")

    def __init__(
        self,
        offsets: LogOffsets,
        segments: Segments,
        limits: AppendLimits,
        health: LogHealth,
        producers: ProducerStates,
        flusher: Flusher,
        config: LogConfig,
    ) -> None:
        self._offsets = offsets
        self._segments = segments
        self._limits = limits
        self._health = health
        self._producers = producers
        self._flusher = flusher
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        self._config = config
        self.set_limits()

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Begin a new active segment at `base_offset`, by default the log end offset. Does nothing when the active
        segment is empty and begins there already."""
        segments = self._segments
        active = segments.active
        base_offset = self._offsets.log_end_offset if base_offset is None else base_offset
        if active.base_offset == base_offset:
            return active
        try:
            self._complete_active(base_offset)
            segment = self.create(base_offset, now_ms)
        except OSError as error:
            try:
                # A part of an entry may have been written.
                active.time_index.truncate_entries(active.time_index.entries)
            except OSError as second:
                self._health.take_offline(second)
            self._health.fail(error, "cannot begin a new segment")
        self._flusher.rolled(base_offset)
        self.add(segment)
        return segment

    def create(self, base_offset: int, now_ms: int) -> Segment:
        """Create a segment, which is not part of the log yet. Raises OSError."""
        return self._segments.create(base_offset, now_ms, self._jitter_ms())

    def add(self, segment: Segment) -> None:
        """Make a new segment the active one."""
        self._segments.add_active(segment)
        self.set_limits()

    def _complete_active(self, end_offset: int) -> None:
        """Write the snapshot and the index entries that end a segment. A disk without room does not prevent a roll:
        retention may have to roll to make room. The next start then replays more batches, and index entries wait for
        the next flush."""
        try:
            self._producers.take_snapshot(end_offset)
        except OSError as error:
            if not is_full(error):
                raise
        try:
            self._segments.active.become_inactive()
        except OSError as error:
            if not is_full(error):
                raise

    def make_room(self, size_bytes: int, base_offset: int, last_offset: int, timestamp: int, now_ms: int) -> Segment:
        """Return the segment for a batch that is past a limit: the active one after all, or a new one. (Kafka's
        LogSegment.shouldRoll.)"""
        self._health.check_appends()
        config = self._config
        active = self._segments.active
        if size_bytes > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE, f"{size_bytes} bytes, segment.bytes is {config.segment_bytes}"
            )
        if active.size_bytes:
            first_timestamp = active.first_timestamp
            waited_ms = timestamp - first_timestamp if first_timestamp >= 0 else now_ms - active.created_ms
            rolls = (
                active.size_bytes + size_bytes > config.segment_bytes
                or waited_ms > config.max_segment_ms - active.roll_jitter_ms
                or self.indexes_full()
            )
        else:
            rolls = False
        if rolls or last_offset - active.base_offset > MAX_RELATIVE_OFFSET:
            # A follower's batch may lie beyond the end: the leader has compacted the offsets in between. The segment
            # still begins at the end: a gap between two segments, as a power cut leaves it, ends the log at the next
            # start.
            end = self._offsets.log_end_offset
            active = self.roll(now_ms, end if last_offset - end <= MAX_RELATIVE_OFFSET else base_offset)
        if not active.size_bytes:
            active.begin_with(timestamp)
        if config.preallocate:
            active.reserve_room(size_bytes, config.segment_bytes)
        self.set_limits(first_timestamp=active.first_timestamp)
        return active

    def indexes_full(self) -> bool:
        # One entry of the time index is reserved for the moment when the segment becomes inactive.
        index_bytes = self._config.segment_index_bytes
        active = self._segments.active
        return (
            active.offset_index.entries >= index_bytes // OffsetIndex.ENTRY_BYTES
            or active.time_index.entries >= index_bytes // TimeIndex.ENTRY_BYTES - 1
        )

    def set_limits(self, first_timestamp: int | None = None) -> None:
        """Recalculate the limits (`AppendLimits.follow`)."""
        limits = self._limits
        limits.follow(self._segments.active, self._config, first_timestamp)
        if self._health.offline or self._health.distrusted or self.indexes_full():
            limits.check_next()

    def _jitter_ms(self) -> int:
        limit_ms = min(self._config.segment_jitter_ms, self._config.max_segment_ms)
        return int.from_bytes(os.urandom(8)) % limit_ms if limit_ms > 0 else 0
