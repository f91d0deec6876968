"""Which logs are on their way to another data folder, and where those not made yet are to be made."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from gregor.protocol.ids import ZERO_UUID, random_uuid
from gregor.protocol.topic_partition import TopicPartition
from gregor.storage.folders.checkpoint_contents import offset_of
from gregor.storage.folders.checkpoints import RECOVERY_POINT_FILE
from gregor.storage.folders.identity import PARTITION_METADATA_FILE, format_partition_metadata
from gregor.storage.folders.move import LogMove
from gregor.storage.folders.names import FolderKind, marked_folder_name

if TYPE_CHECKING:
    from gregor.storage.folders.checkpoints import Offsets
    from gregor.storage.folders.data_folder import DataFolder
    from gregor.storage.folders.log_table import LogTable
    from gregor.storage.fs.files import Files
    from gregor.storage.log.log import Log

logger = logging.getLogger(__name__)

MAX_PREFERRED = 10_000
"""Wishes for partitions that do not exist: anybody may have any number."""


class LogMoves:
    """Part of LogManager, whose table it works on."""

    def __init__(
        self,
        files: Files,
        table: LogTable,
        on_error: Callable[[Log, OSError], None],
    ) -> None:
        self.under_way: dict[TopicPartition, LogMove] = {}
        self.wishes: dict[TopicPartition, DataFolder] = {}
        """Moves that the last stop or a crash has interrupted: to be begun again."""
        self._files = files
        self._on_error = on_error
        self._table = table
        self._preferred: dict[TopicPartition, DataFolder] = {}
        self._left: dict[TopicPartition, tuple[DataFolder, str]] = {}
        """What these moves have copied: data folder, path."""

    def wish(self, key: TopicPartition, folder: DataFolder, path: str) -> list[str]:
        """A start has found the copy of a partition that is here. Returns what is to be removed: an older find."""
        older = self._left.get(key)
        self.wishes[key] = folder
        self._left[key] = folder, path
        return [] if older is None else [older[1]]

    def prefer(self, key: TopicPartition, folder: DataFolder) -> None:
        """Where a log is to be made that does not exist yet."""
        if len(self._preferred) < MAX_PREFERRED:
            self._preferred[key] = folder

    def pop_preferred(self, key: TopicPartition) -> DataFolder | None:
        return self._preferred.pop(key, None)

    def begin(self, key: TopicPartition, folder: DataFolder) -> LogMove:
        """A log that is not under way is from now on. Raises OSError."""
        log = self._table.logs[key]
        self.wishes.pop(key, None)
        left = self._left.get(key)
        if left is not None and left[0] is folder and (unique_id := _unique_id(key, left[1])) is not None:
            del self._left[key]
            move = LogMove(
                self._files, log, self._table.homes[key], folder, unique_id, on_error=self._on_error, resumes=True
            )
        else:
            other = self.drop_left(key)
            move = LogMove(self._files, log, self._table.homes[key], folder, random_uuid(), on_error=self._on_error)
            if other is not None:
                move.unlinkable.append(other)
        if log.topic_id != ZERO_UUID:
            data = format_partition_metadata(log.topic_id)
            self._files.write_atomically(f"{move.directory}/{PARTITION_METADATA_FILE}", data, sync=False)
        folder.partitions_count += 1
        log.begin_move()
        self.under_way[key] = move
        return move

    def finish(self, move: LogMove, now_ms: int) -> tuple[Log, str]:
        """As LogMove.finish; the log is in the tables at its new place then."""
        key = TopicPartition(move.log.topic, move.log.partition)
        moved, old = move.finish(now_ms)
        move.home.partitions_count -= 1
        del self.under_way[key]
        self._table.logs[key] = moved
        self._table.homes[key] = move.folder
        return moved, old

    def cancel(self, key: TopicPartition) -> str | None:
        """Gives a move up, if there is one; returns what is to be removed of it. Raises nothing: what cannot be renamed
        is found by the next start."""
        move = self._forget(key)
        if move is None:
            return self.drop_left(key)
        if move.folder.failure is not None:
            return None
        try:
            return move.cancel()
        except OSError as error:
            logger.error("%s cannot be set aside for removal: %s", move.directory, error)
            return None

    def drop_left(self, key: TopicPartition) -> str | None:
        """The move is not gone on with; returns what is to be removed of it. Raises nothing, as `cancel`."""
        folder, path = self._left.pop(key, (None, ""))
        if folder is None or folder.failure is not None:
            return None
        deleted_path = f"{folder.path}/{marked_folder_name(*key, FolderKind.DELETE, random_uuid())}"
        try:
            self._files.rename(path, deleted_path)
        except OSError as error:
            logger.error("%s cannot be set aside for removal: %s", path, error)
            return None
        return deleted_path

    def folder_failed(self, folder: DataFolder) -> None:
        """No move comes from there or goes there any more."""
        for key, move in list(self.under_way.items()):
            if folder in (move.home, move.folder):
                self._forget(key)

    def _forget(self, key: TopicPartition) -> LogMove | None:
        self.wishes.pop(key, None)
        move = self.under_way.pop(key, None)
        if move is not None:
            move.cancelled = True
            move.log.cancel_move()
            move.folder.partitions_count -= 1
        return move

    def leave_wishes(self) -> None:
        """At a stop: the next start goes on with the moves."""
        for key, move in list(self.under_way.items()):
            del self.under_way[key]
            with suppress(OSError):  # then the next start finds a part of a copy, and removes it itself
                move.leave_wish()

    def add_offsets(self, name: str, contents: dict[str, Offsets]) -> None:
        """Puts what a checkpoint file says of a log into that of the folder it moves to as well: it counts there from
        the moment of the swap. Until then that folder's entries have no partition, and are passed over."""
        for key, move in self.under_way.items():
            offsets = contents.get(f"{move.folder.path}/{name}")
            offset = offset_of(name, move.log)
            if offsets is not None and offset is not None:
                offsets[key] = min(offset, move.recovery_point) if name == RECOVERY_POINT_FILE else offset


def _unique_id(key: TopicPartition, path: str) -> bytes | None:
    """That of a copy's folder; None if this is not how we name one."""
    with suppress(ValueError):
        unique_id = bytes.fromhex(path.rpartition(".")[2].removesuffix(f"-{FolderKind.FUTURE.value}"))
        if marked_folder_name(*key, FolderKind.FUTURE, unique_id) == path.rpartition("/")[2]:
            return unique_id
    return None
