"""The state that the parts of a log share: segments, offsets, append limits, health, long work."""

from __future__ import annotations

import errno
import logging
import os
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.storage.segment.segment import Segment

if TYPE_CHECKING:
    from gregor.storage.fs.files import Files

logger = logging.getLogger(__name__)

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
        return sum(segment.size_bytes for segment in self.items)

    def index_of(self, offset: int) -> int:
        """Return the index of the segment that holds the offset, if any does; 0 for offsets below the first."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def create(self, base_offset: int, now_ms: int) -> Segment:
        """Create a new segment, which is not in the list yet. Raises OSError."""
        return Segment.create(self.files, self.directory, base_offset, now_ms=now_ms)

    def add_active(self, segment: Segment) -> None:
        self.items.append(segment)
        self.bases.append(segment.base_offset)
        self.active = segment
        self.names_changed = True
        self.positions.clear()

    def remove_first(self) -> None:
        del self.items[0], self.bases[0]

    def remove_from(self, index: int) -> None:
        del self.items[index:]
        del self.bases[index:]
        self.names_changed = True

    def replace(self, indexes: slice, segment: Segment) -> None:
        self.items[indexes] = [segment]
        self.bases[indexes] = [segment.base_offset]
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
        "cleaned_offset",
        "high_watermark",
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

    def restore_high_watermark(self, offset: int) -> None:
        """Set the high watermark to that of a checkpoint, or to the nearest offset that the log holds."""
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)

    def acknowledge_lower_recovery_point(self) -> bool:
        """Return whether a truncation has lowered the recovery point since the last call: until the checkpoint is
        written again, it covers offsets whose new batches are not synced."""
        fell, self.recovery_point_fell = self.recovery_point_fell, False
        return fell

    def mark_cleaned_to(self, offset: int | None) -> None:
        """Note that everything below the offset has been compacted; None: the log was never compacted."""
        self.cleaned_offset = offset


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
        logger.error("%s goes offline: %s", self.directory, error)
        self.retire()

    def retire(self) -> None:
        """Write nothing any more: the files under the log's names may belong to another log by now."""
        self.offline = True
        self._limits.check_next()

    def distrust(self) -> None:
        self.distrusted = True
        self._limits.check_next()

    def check_appends(self) -> None:
        """Raise KAFKA_STORAGE_ERROR where nothing may be appended."""
        if self.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is offline after a failed write")
        if self.distrusted:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} waits for room on its disk") from OSError(
                errno.ENOSPC, os.strerror(errno.ENOSPC)
            )
