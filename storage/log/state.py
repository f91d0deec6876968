"""The state that the parts of a log share: segments, offsets, append limits, health, long work."""

from __future__ import annotations

import errno
import logging
import os
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.storage.segment.batches import MAX_RELATIVE_OFFSET
from gregor.storage.segment.segment import Segment

if TYPE_CHECKING:
    from gregor.config.topic import LogConfig
    from gregor.protocol.topic_partition import TopicPartition
    from gregor.storage.fs.files import Files

_log = logging.getLogger(__name__)

NEVER = 2**63 - 1
MAX_KNOWN_POSITIONS = 64


class Segments:
    """The list of segments; the parts of a log decide what is added and removed. Invariants:

    - `items` ascend by base offset, `bases` are their base offsets, and the last one is `active`, the only one that is
      appended to. Only a truncation that failed leaves none; the log is offline then.
    - `generation` changes with every truncation: a copy of the log from before is no longer a prefix of it.
    """

    __slots__ = ("active", "bases", "directory", "files", "generation", "items", "names_changed", "positions")

    def __init__(self, files: Files, directory: str, items: list[Segment], *, names_changed: bool = True) -> None:
        self.files = files
        self.directory = directory
        self.items = items
        self.bases = [segment.base_offset for segment in items]
        self.active = items[-1]
        self.generation = 0
        self.names_changed = names_changed
        """Files were created, renamed or deleted in the folder since it was last synced."""
        self.positions: dict[int, int] = {}
        """Positions of some batches of the active segment by base offset: where the next reads begin or end."""

    @property
    def size_bytes(self) -> int:
        items = self.items
        return items[0].size_bytes if len(items) == 1 else sum([segment.size_bytes for segment in items])

    def index_of(self, offset: int) -> int:
        """Return the index of the segment that holds the offset, if any does; 0 for offsets below the first."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def create(self, base_offset: int, now_ms: int, roll_jitter_ms: int = 0) -> Segment:
        """Create a new segment, which is not in the list yet. Raises OSError."""
        return Segment.create(self.files, self.directory, base_offset, now_ms=now_ms, roll_jitter_ms=roll_jitter_ms)

    def add_active(self, segment: Segment) -> None:
        self.items.append(segment)
        self.bases.append(segment.base_offset)
        self.active = segment
        self.names_changed = True
        self.positions.clear()

    def activate_last(self) -> Segment:
        """Make the last segment the active one again, after those behind it were removed; returns it. Raises OSError,
        CorruptBatch."""
        self.active = self.items[-1]
        self.active.activate()
        return self.active

    def mark_first_deleted(self) -> list[str]:
        """Remove the first segment; returns the paths of its renamed files, to be unlinked. Raises OSError: it is still
        in the list then, and some of its files may be renamed."""
        self.names_changed = True
        paths = self.items[0].mark_deleted()
        del self.items[0], self.bases[0]
        return paths

    def remove_from(self, index: int) -> None:
        del self.items[index:]
        del self.bases[index:]
        self.names_changed = True

    def replace(self, indexes: slice, segment: Segment) -> None:
        self.items[indexes] = [segment]
        self.bases[indexes] = [segment.base_offset]
        self.names_changed = True

    def note_new_names(self) -> None:
        """Note that files were created or renamed in the folder by another part than this list."""
        self.names_changed = True

    def sync_planned(self) -> None:
        """Note that a flush is planned that syncs the folder."""
        self.names_changed = False

    def sync_failed(self) -> None:
        """Note that the planned flush has not synced the folder."""
        self.names_changed = True

    def truncated(self) -> None:
        """Note that the end of the log was removed."""
        self.generation += 1
        self.positions.clear()

    def remember(self, offset: int, position: int) -> None:
        """Note where the batch of this offset of the active segment begins: the next read begins there, or the high
        watermark lies there."""
        known = self.positions
        if len(known) >= MAX_KNOWN_POSITIONS:
            known.clear()
        known[offset] = position


class LogOffsets:
    """log start offset <= high watermark <= log end offset; the recovery point lies somewhere below the end."""

    __slots__ = (
        "_key",
        "_moved",
        "cleaned_offset",
        "high_watermark",
        "is_moved",
        "log_end_offset",
        "log_start_offset",
        "recovery_point",
        "recovery_point_fell",
    )

    def __init__(self, log_start_offset: int, log_end_offset: int, recovery_point: int) -> None:
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = log_start_offset
        """Set by the partition, which knows the replicas. Readers pass it as their upper offset; retention obeys it."""
        self.is_moved = False
        """Whether it is noted that the high watermark has moved since its checkpoint; `note_move` notes it."""
        self._moved: set[TopicPartition] | None = None
        self._key: TopicPartition | None = None
        self.recovery_point = min(recovery_point, log_end_offset)
        """Everything below it was synced."""
        self.recovery_point_fell = False
        """Set by a truncation: a checkpoint from before it covers offsets whose new batches are not synced.
        Cleared by `acknowledge_lower_recovery_point`, which the writer of the checkpoints calls."""
        self.cleaned_offset: int | None = None
        """Everything below it has been compacted; None: the log was never compacted."""

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    def note_moves_in(self, moved: set[TopicPartition], key: TopicPartition) -> None:
        """Add `key` to `moved` now, as no checkpoint has this high watermark, and later when that moves."""
        self._moved, self._key = moved, key
        self.note_move()

    def note_move(self) -> None:
        """Note that the high watermark moves: the next checkpoint has to be written."""
        self.is_moved = True
        if self._moved is not None and self._key is not None:
            self._moved.add(self._key)

    def acknowledge_move(self) -> None:
        """Note that a checkpoint gets the present high watermark."""
        self.is_moved = False

    def set_high_watermark(self, offset: int) -> None:
        """Move the high watermark, up or down; has no effect where it is there already."""
        if offset != self.high_watermark:
            self.high_watermark = offset
            if not self.is_moved:
                self.note_move()

    def restore_high_watermark(self, offset: int) -> None:
        """Set the high watermark to that of a checkpoint, or to the nearest offset that the log holds."""
        self.set_high_watermark(min(max(offset, self.log_start_offset), self.log_end_offset))

    def acknowledge_lower_recovery_point(self) -> bool:
        """Return whether a truncation has lowered the recovery point since the last call: until the checkpoint is
        written again, it covers offsets whose new batches are not synced."""
        fell, self.recovery_point_fell = self.recovery_point_fell, False
        return fell

    def mark_cleaned_to(self, offset: int | None) -> None:
        """Note that everything below the offset has been compacted; None: the log was never compacted."""
        self.cleaned_offset = offset

    def restart_at(self, offset: int) -> None:
        """Note that the log is empty, and begins at this offset."""
        self.log_start_offset = self.log_end_offset = offset
        self.set_high_watermark(offset)
        self._lower_recovery_point(offset)
        self.recovery_point = offset

    def truncate_to(self, offset: int) -> None:
        """Note that everything from this offset on was removed."""
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.set_high_watermark(min(self.high_watermark, offset))
        self._lower_recovery_point(offset)

    def _lower_recovery_point(self, offset: int) -> None:
        self.recovery_point_fell |= offset < self.recovery_point
        self.recovery_point = min(self.recovery_point, offset)
        if self.cleaned_offset is not None:
            self.cleaned_offset = min(self.cleaned_offset, offset)

    def advance_log_start(self, offset: int) -> bool:
        """Move the log start offset up, and return whether it has moved: it never moves back. Raises
        OFFSET_OUT_OF_RANGE above the high watermark."""
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is beyond the high watermark {self.high_watermark}"
            )
        moves = offset > self.log_start_offset
        if moves:
            self.log_start_offset = offset
        return moves

    def synced_below(self, offset: int) -> None:
        """Note that everything below this offset is synced."""
        self.recovery_point = max(self.recovery_point, offset)

    def segment_began(self, base_offset: int) -> None:
        """Note that a segment begins at this offset. The batches below it may be synced, but the last entry of their
        time index is not."""
        self.recovery_point = min(self.recovery_point, base_offset - 1)


class LongWork:
    """The long work on a log that excludes other work: while the log is compacted, retention removes nothing, and it is
    not moved; while it is being copied to another data folder, no compaction begins."""

    __slots__ = ("cleaning", "moving")

    def __init__(self) -> None:
        self.cleaning = False
        """A compaction is under way: retention, and the end of a move, wait until it is over."""
        self.moving = False
        """A copy is being made in another data folder (storage.folders.moves): a compaction would only restart it."""

    @property
    def lets_clean(self) -> bool:
        """Return whether a compaction may begin."""
        return not (self.cleaning or self.moving)

    def begin_cleaning(self) -> None:
        self.cleaning = True

    def end_cleaning(self) -> None:
        self.cleaning = False

    def begin_move(self) -> None:
        self.moving = True

    def cancel_move(self) -> None:
        self.moving = False


class AppendLimits:
    """Appends compare with these four numbers; only past one of them is `Roller.make_room` called."""

    __slots__ = ("ms", "offset", "position", "timestamp")

    def __init__(self) -> None:
        self.offset = self.timestamp = self.ms = NEVER
        self.check_next()

    def follow(self, active: Segment, config: LogConfig, first_timestamp: int | None = None) -> None:
        """Recalculate the limits for the active segment. The first batch of an empty one is always past a limit: it
        decides the others. `first_timestamp` is that of the first batch, where it is about to be appended."""
        self.offset = active.base_offset + MAX_RELATIVE_OFFSET
        self.timestamp = NEVER
        self.ms = NEVER
        self.position = config.segment_bytes
        if config.preallocate:  # the next piece is allocated there
            self.position = min(config.segment_bytes, active.reserved_bytes)
        if first_timestamp is None:
            if not active.size_bytes:
                self.ms = -1
                return
            first_timestamp = active.first_timestamp
        wait_ms = config.max_segment_ms - active.roll_jitter_ms
        if first_timestamp >= 0:
            self.timestamp = first_timestamp + wait_ms
        else:
            self.ms = active.created_ms + wait_ms

    def check_next(self) -> None:
        """Every batch is past this limit, so the next append goes through `Roller.make_room`."""
        self.position = -1


class LogHealth:
    """Whether a log may be written to, and how its errors are reported."""

    __slots__ = ("_limits", "_report", "directory", "distrusted", "name", "offline")

    def __init__(self, directory: str, name: str, limits: AppendLimits, report: Callable[[OSError], None]) -> None:
        """`report` is called with every error of the operating system that a method fails with, before it raises."""
        self.directory = directory
        self.name = name
        self.offline = False
        """A file could not be brought back to a known state: nothing is appended any more."""
        self.distrusted = False
        """A sync found no room: everything above the recovery point must be written again, by `Flusher.plan`, before
        anything is appended."""
        self._limits = limits
        self._report = report

    def fail(self, error: OSError, doing: str) -> NoReturn:
        """Raise KAFKA_STORAGE_ERROR for an error of the operating system."""
        self._report(error)
        # Clients may receive the message, so it names no paths.
        reason = error.strerror or type(error).__name__
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: {doing}: {reason}") from error

    def take_offline(self, error: OSError) -> None:
        _log.error("%s goes offline: %s", self.directory, error)
        self.retire()

    def retire(self) -> None:
        """Write nothing any more: the files under the log's names may belong to another log by now."""
        self.offline = True
        self._limits.check_next()

    def distrust(self) -> None:
        self.distrusted = True
        self._limits.check_next()

    def rewritten(self) -> None:
        """Note that everything above the recovery point was written again, and synced."""
        self.distrusted = False

    def check_appends(self) -> None:
        """Raise KAFKA_STORAGE_ERROR where nothing may be appended."""
        if self.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is offline after a failed write")
        if self.distrusted:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} waits for room on its disk") from OSError(
                errno.ENOSPC, os.strerror(errno.ENOSPC)
            )
