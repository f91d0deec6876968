"""The moves of logs to other data folders, and the preferred folders of logs that do not exist yet."""

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

_log = logging.getLogger(__name__)

MAX_PREFERRED = 10_000
"""Of partitions that do not exist: a client may send any number of them."""


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
        """Moves that the last stop or a crash has interrupted, and that are to be resumed."""
        self._files = files
        self._on_error = on_error
        self._table = table
        self._preferred: dict[TopicPartition, DataFolder] = {}
        self._left: dict[TopicPartition, tuple[DataFolder, str]] = {}
        """The copies of these moves: data folder, path."""

    def wish(self, key: TopicPartition, folder: DataFolder, path: str) -> list[str]:
        """Note that a start has found the copy of a partition that is here. Returns the paths to remove: an older
        copy."""
        older = self._left.get(key)
        self.wishes[key] = folder
        self._left[key] = folder, path
        return [] if older is None else [older[1]]

    def prefer(self, key: TopicPartition, folder: DataFolder) -> None:
        """Set the folder in which a log is created that does not exist yet."""
        if len(self._preferred) < MAX_PREFERRED:
            self._preferred[key] = folder

    def pop_preferred(self, key: TopicPartition) -> DataFolder | None:
        return self._preferred.pop(key, None)

    def begin(self, key: TopicPartition, folder: DataFolder) -> LogMove:
        """Begin the move of a log that is not being moved. Raises OSError."""
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
        folder.add_partition()
        log.work.begin_move()
        self.under_way[key] = move
        return move

    def finish(self, move: LogMove, now_ms: int) -> tuple[Log, str]:
        """Do as LogMove.finish; the tables have the moved log then."""
        key = TopicPartition(move.log.topic, move.log.partition)
        moved, old = move.finish(now_ms)
        move.home.remove_partition()
        del self.under_way[key]
        self._table.logs[key] = moved
        self._table.homes[key] = move.folder
        return moved, old

    def cancel(self, key: TopicPartition) -> str | None:
        """Cancel a move, if there is one; returns the path to remove. Raises nothing: the next start finds a copy that
        cannot be renamed."""
        move = self._forget(key)
        if move is None:
            return self.drop_left(key)
        if move.folder.failure is not None:
            return None
        try:
            return move.cancel()
        except OSError as error:
            _log.error("%s cannot be set aside for removal: %s", move.directory, error)
            return None

    def drop_left(self, key: TopicPartition) -> str | None:
        """Abandon an interrupted move; returns the path to remove. Raises nothing, as `cancel`."""
        folder, path = self._left.pop(key, (None, ""))
        if folder is None or folder.failure is not None:
            return None
        deleted_path = f"{folder.path}/{marked_folder_name(*key, FolderKind.DELETE, random_uuid())}"
        try:
            self._files.rename(path, deleted_path)
        except OSError as error:
            _log.error("%s cannot be set aside for removal: %s", path, error)
            return None
        return deleted_path

    def folder_failed(self, folder: DataFolder) -> None:
        """Drop all moves from and to the folder."""
        for key, move in list(self.under_way.items()):
            if folder in (move.home, move.folder):
                self._forget(key)

    def _forget(self, key: TopicPartition) -> LogMove | None:
        self.wishes.pop(key, None)
        move = self.under_way.pop(key, None)
        if move is not None:
            move.abandon()
            move.folder.remove_partition()
        return move

    def pop_wish(self, key: TopicPartition) -> DataFolder | None:
        """Return the target of an interrupted move, once: the caller resumes it. None without one."""
        return self.wishes.pop(key, None)

    def leave_wishes(self) -> None:
        """Suspend the moves at a stop: the next start resumes them."""
        for key, move in list(self.under_way.items()):
            del self.under_way[key]
            with suppress(OSError):  # then the next start finds a part of a copy, and removes it itself
                move.leave_wish()

    def add_offsets(self, name: str, contents: dict[str, Offsets]) -> None:
        """Add the entry of a log to the checkpoint file of the folder that it moves to as well: it is valid there from
        the moment of the swap. Until then it belongs to no partition of that folder, and is ignored."""
        for key, move in self.under_way.items():
            offsets = contents.get(f"{move.folder.path}/{name}")
            offset = offset_of(name, move.log)
            if offsets is not None and offset is not None:
                offsets[key] = min(offset, move.recovery_point) if name == RECOVERY_POINT_FILE else offset


def _unique_id(key: TopicPartition, path: str) -> bytes | None:
    """Return the id in the name of a copy's folder; None if this broker does not name one like that."""
    with suppress(ValueError):
        unique_id = bytes.fromhex(path.rpartition(".")[2].removesuffix(f"-{FolderKind.FUTURE.value}"))
        if marked_folder_name(*key, FolderKind.FUTURE, unique_id) == path.rpartition("/")[2]:
            return unique_id
    return None
