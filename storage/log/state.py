"""What every part of a log works on: its segments, its offsets, and the limits at which the active segment rolls."""

from __future__ import annotations

import errno
import logging
import os
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import Uuid
from gregor.storage.fs.disk_errors import is_full
from gregor.storage.log.prepare import is_special
from gregor.storage.segment.batches import MAX_RELATIVE_OFFSET
from gregor.storage.segment.index import OffsetIndex, TimeIndex
from gregor.storage.segment.segment import Segment

if TYPE_CHECKING:
    from gregor.config.topic import LogConfig
    from gregor.storage.fs.files import Files
    from gregor.storage.log.epochs import LeaderEpochs
    from gregor.storage.log.swap import SwapPlan
    from gregor.storage.producers.state import ProducerStates

logger = logging.getLogger(__name__)

NEVER = 2**63 - 1
KNOWN_POSITIONS = 64


def _nobody_asks(_log: LogState, _error: OSError) -> None:
    return


class LogState:
    """Base of Log; not for use by itself. Not thread-safe."""

    __slots__ = (
        "_active",
        "_bases",
        "_config",
        "_directory_changed",
        "_doomed",
        "_epochs",
        "_files",
        "_generation",
        "_index_interval_bytes",
        "_known_positions",
        "_max_message_bytes",
        "_producers",
        "_roll_at_ms",
        "_roll_at_offset",
        "_roll_at_position",
        "_roll_at_timestamp",
        "_rolled_offset",
        "_segments",
        "_stamps_append_time",
        "_swap",
        "_timestamp_after_max_ms",
        "_timestamp_before_max_ms",
        "cleaned_offset",
        "cleaning",
        "directory",
        "distrusted",
        "flushes_soon",
        "high_watermark",
        "is_cut",
        "is_special",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "moving",
        "offline",
        "on_error",
        "partition",
        "recovery_point",
        "recovery_point_fell",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        files: Files,
        *,
        topic: str,
        partition: int,
        topic_id: Uuid,
        segments: list[Segment],
        producers: ProducerStates,
        epochs: LeaderEpochs,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        now_ms: int,
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = log_start_offset
        """Set by who knows the replicas. Readers give it as their upper offset; retention obeys it."""
        self.recovery_point = min(recovery_point, log_end_offset)
        """Everything below it was synced."""
        self.recovery_point_fell = False
        """Set by a truncation: a checkpoint from before it vouches for what comes in the place of what was synced. For
        who writes checkpoints to clear."""
        self.last_flush_ms = now_ms
        self.cleaned_offset: int | None = None
        """Compaction has dealt with everything below it; None: it was never here."""
        self.cleaning = False
        """A compaction is under way: retention waits until it is over."""
        self.moving = False
        """A copy is being made in another data folder (storage.folders.moves): compaction would only begin it anew."""
        self.offline = False
        """Set when a file could not be brought back to a known state: nothing is appended any more."""
        self.is_cut = False
        """Truncated, and not synced since: until then a power cut may bring back what was cut off, in front of what
        was written behind the cut since, or instead of it."""
        self.distrusted = False
        """A sync found no room: what lies above the recovery point must be written again before anything is appended
        (`plan_flush` sees to it)."""
        self.on_error: Callable[[LogState, OSError], None] = _nobody_asks
        """Called with every error of the operating system that a method fails with, before it raises."""
        self._files = files
        self._segments = segments
        producers.segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._active = segments[-1]
        self._producers = producers
        self._epochs = epochs
        self._known_positions: dict[int, int] = {}
        """Positions of some batches of the active segment, by base offset: where readers will go on."""
        self._directory_changed = True
        self._generation = 0
        self._rolled_offset = -1
        """Base offset of the active segment since a roll that no flush has followed, else -1."""
        self._doomed: list[str] = []
        """Marked as deleted by an attempt that failed half way: for the next one to return."""
        self._swap: SwapPlan | None = None
        """The compacted segment that has begun to replace others."""
        self._config = config
        self.config = config

    def __repr__(self) -> str:
        return f"Log({self.directory!r}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def config(self) -> LogConfig:
        """May be replaced at any time; the next append obeys the new one."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._max_message_bytes = config.max_message_bytes
        self._index_interval_bytes = config.index_interval_bytes
        self._stamps_append_time = config.message_timestamp_type == "LogAppendTime"
        self._timestamp_after_max_ms = NEVER if self._stamps_append_time else config.message_timestamp_after_max_ms
        self._timestamp_before_max_ms = NEVER if self._stamps_append_time else config.message_timestamp_before_max_ms
        self.is_special = is_special(config)
        """Whether batches of the usual kind need more than a look at their header."""
        self._set_roll_limits()
        self._set_flushes_soon()

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def first_segment_offset(self) -> int:
        # A truncation that failed may have left no segment.
        return self._bases[0] if self._bases else self.log_start_offset

    @property
    def segments_count(self) -> int:
        return len(self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """In offset order, the active one last. To look at."""
        return tuple(self._segments)

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    # Rolling

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Begins a new active segment at `base_offset`, by default the log end offset. Does nothing when the active
        segment is empty and begins there already."""
        base_offset = self.log_end_offset if base_offset is None else base_offset
        active = self._active
        if active.base_offset == base_offset:
            return active
        try:
            self._complete_active(base_offset)
            segment = Segment.create(self._files, self.directory, base_offset, now_ms=now_ms)
        except OSError as error:
            try:
                # A part of an entry may have been written.
                active.time_index.truncate_entries(active.time_index.entries)
            except OSError as second:
                self._take_offline(second)
            self._fail(error, "cannot begin a new segment")
        segment.roll_jitter_ms = self._jitter_ms()
        self._directory_changed = True
        self._rolled_offset = base_offset
        if self.recovery_point >= base_offset:
            # The batches are synced, but not the last entry of their time index.
            self.recovery_point = base_offset - 1
        self.flushes_soon = True
        self._add_active(segment)
        return segment

    def _set_flushes_soon(self) -> None:
        """`flushes_soon` is False of a log that nothing makes due for a flush but its end: most logs, most of the time,
        and thousands of them need not be asked each second."""
        config = self._config
        self.flushes_soon = (
            config.flush_messages < NEVER
            or config.flush_ms < NEVER
            or self._rolled_offset > self.recovery_point
            or self.distrusted
            or self.is_cut
        )

    def _complete_active(self, end_offset: int) -> None:
        """What a segment gets when it ends. A disk without room keeps it from nothing: retention may have to roll to
        make room. The next start then replays more batches, and index entries wait for the next flush."""
        try:
            self._producers.take_snapshot(end_offset)
        except OSError as error:
            if not is_full(error):
                raise
        try:
            self._active.become_inactive()
        except OSError as error:
            if not is_full(error):
                raise

    def _add_active(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self._active = segment
        self._known_positions.clear()
        self._set_roll_limits()

    def _make_room(self, size_bytes: int, base_offset: int, last_offset: int, timestamp: int, now_ms: int) -> Segment:
        """The segment for a batch that hit a limit: the active one after all, or a new one. (Kafka's
        LogSegment.shouldRoll.)"""
        if self.offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic}-{self.partition} is offline after a failed write"
            )
        if self.distrusted:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic}-{self.partition} waits for room on its disk"
            ) from OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        config = self._config
        active = self._active
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
                or self._indexes_full()
            )
        else:
            rolls = False
        if rolls or last_offset - active.base_offset > MAX_RELATIVE_OFFSET:
            # A follower's batch may lie beyond the end: what is between, its leader has compacted. The segment begins
            # at the end all the same: a gap between two is what a power cut leaves, and ends the log at the next start.
            end = self.log_end_offset
            active = self.roll(now_ms, end if last_offset - end <= MAX_RELATIVE_OFFSET else base_offset)
        if not active.size_bytes:
            active.first_timestamp = timestamp
        if config.preallocate:
            active.reserve_room(size_bytes, config.segment_bytes)
        self._set_roll_limits(first_timestamp=active.first_timestamp)
        return active

    def _indexes_full(self) -> bool:
        # The time index keeps a place for the entry it gets when the segment becomes inactive.
        index_bytes = self._config.segment_index_bytes
        return (
            self._active.offset_index.entries >= index_bytes // OffsetIndex.ENTRY_BYTES
            or self._active.time_index.entries >= index_bytes // TimeIndex.ENTRY_BYTES - 1
        )

    def _set_roll_limits(self, first_timestamp: int | None = None) -> None:
        """Appends compare with these four numbers, and only when one is exceeded ask `_make_room`. Of an empty
        segment nothing is known, so its first batch always asks."""
        active, config = self._active, self._config
        self._roll_at_offset = active.base_offset + MAX_RELATIVE_OFFSET
        self._roll_at_timestamp = NEVER
        self._roll_at_ms = NEVER
        self._roll_at_position = config.segment_bytes
        if config.preallocate:  # another piece is due there
            self._roll_at_position = min(config.segment_bytes, active.reserved_bytes)
        if first_timestamp is None:
            if not active.size_bytes:
                self._roll_at_ms = -1
                return
            first_timestamp = active.first_timestamp
        wait_ms = config.max_segment_ms - active.roll_jitter_ms
        if first_timestamp >= 0:
            self._roll_at_timestamp = first_timestamp + wait_ms
        else:
            self._roll_at_ms = active.created_ms + wait_ms
        if self.offline or self.distrusted or self._indexes_full():
            self._roll_at_position = -1

    def _jitter_ms(self) -> int:
        limit_ms = min(self._config.segment_jitter_ms, self._config.max_segment_ms)
        return int.from_bytes(os.urandom(8)) % limit_ms if limit_ms > 0 else 0

    # Finding things

    def _segment_index(self, offset: int) -> int:
        """Index of the segment that holds the offset, if any does; 0 for offsets below the first."""
        return max(0, bisect_right(self._bases, offset) - 1)

    # Trouble

    def _fail(self, error: OSError, doing: str) -> NoReturn:
        self.on_error(self, error)
        # Clients may get to see the message: no paths in it.
        reason = error.strerror or type(error).__name__
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic}-{self.partition}: {doing}: {reason}") from error

    def _take_offline(self, error: OSError) -> None:
        logger.error("%s goes offline: %s", self.directory, error)
        self.retire()

    def retire(self) -> None:
        """Nothing is written any more by this object: what lies under its names may be another log's by now."""
        self.offline = True
        self._roll_at_position = -1
