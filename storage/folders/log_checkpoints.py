"""Writes the checkpoint files of all data folders: gathered in steps on the loop, written on a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gregor.protocol.turns import run_all
from gregor.storage.folders.checkpoint_contents import gather
from gregor.storage.folders.checkpoint_plan import CheckpointOrder, CheckpointPlan
from gregor.storage.folders.checkpoints import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    Offsets,
)

if TYPE_CHECKING:
    from gregor.protocol.topic_partition import TopicPartition
    from gregor.protocol.turns import Steps
    from gregor.storage.folders.data_folders import DataFolders
    from gregor.storage.folders.log_table import LogTable
    from gregor.storage.folders.moves import LogMoves
    from gregor.storage.fs.files import Files

Write = Callable[[], dict[str, OSError]]
"""A call for a thread; returns the errors by data folder, for `LogManager.report`."""

_ALL = (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE, CLEANER_OFFSET_FILE)


class LogCheckpoints:
    """Part of LogManager. The offsets are those of the moment of the call."""

    def __init__(self, folders: DataFolders, table: LogTable, moves: LogMoves, files: Files) -> None:
        self._folders = folders
        self._table = table
        self._moves = moves
        self._files = files
        self._order = CheckpointOrder()
        self._removals = 0
        self._moves_written = False
        """The last plan of high watermarks has written them."""
        self._unsynced_paths: list[str] = []
        self._unsynced_folders: set[str] = set()
        self.stale_keys: set[TopicPartition] = set()
        """Of removed partitions: the checkpoint files may still hold their offsets."""

    def sync_later(self, path: str) -> None:
        """Sync a small file, which was written just now, with the next checkpoints."""
        self._unsynced_paths.append(path)

    def names_changed(self, *folder_paths: str) -> None:
        """Note that partition folders were created or renamed there: the next checkpoints sync the names."""
        self._unsynced_folders.update(folder_paths)

    def names(self, folder_paths: Iterable[str]) -> Write:
        """Sync the names of partition folders there, before the next checkpoints."""
        return CheckpointPlan(self._files, self._order, {}, directories=sorted(folder_paths)).sync_directories

    def removed(self, key: TopicPartition) -> None:
        """Note that the log of a partition was removed."""
        self.stale_keys.add(key)
        self._removals += 1

    def recovery_points(self) -> Steps[Write]:
        """Gather recovery points and log start offsets."""
        return self._plan(RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE)

    def high_watermarks(self) -> Steps[Write | None]:
        """Gather the high watermarks. None if none has moved since their last checkpoint: a broker without traffic
        visits no log."""
        logs = self._table.logs
        others = self._moves.under_way or self._unsynced_paths or self._unsynced_folders
        if self._moves_written and not logs.moved and not others:
            return None
        self._moves_written = False
        yield from logs.acknowledge_moves()
        return partial(self._write_moves, (yield from self._plan(HIGH_WATERMARK_FILE)))

    def _write_moves(self, write: Write) -> dict[str, OSError]:
        errors = write()
        self._moves_written = not errors
        return errors

    def log_starts(self) -> Write:
        """Gather the log start offsets alone, to be written without a wait for the disk."""
        plan = CheckpointPlan(self._files, self._order, run_all(self._gather([LOG_START_OFFSET_FILE])))
        return lambda: plan.run(sync=False)

    def cleaned_offsets(self) -> Steps[Write]:
        return self._plan(CLEANER_OFFSET_FILE)

    def write_all(self) -> dict[str, OSError]:
        """Write all of them in this call; returns the errors by data folder."""
        return run_all(self._plan(*_ALL))()

    def remove_stale(self) -> Steps[dict[str, OSError]]:
        """Remove the offsets of removed partitions from the files; returns the errors by data folder. A partition that
        is created again before that must wait for `remove_stale_now`, which writes those of all partitions."""
        if not self.stale_keys:
            return {}
        removals = self._removals
        errors: dict[str, OSError] = yield (yield from self._plan(*_ALL))
        if not errors and self._removals == removals:
            self.stale_keys.clear()
        return errors

    def remove_stale_now(self) -> dict[str, OSError]:
        """Do as `remove_stale`, at once and without a wait for the disk."""
        plan = CheckpointPlan(self._files, self._order, run_all(self._gather(_ALL)))
        errors = plan.run(sync=False)
        if not errors:
            self.stale_keys.clear()
        return errors

    def _plan(self, *names: str) -> Steps[Write]:
        """Plan the files, and the deferred syncs of new partition.metadata files and of renamed folders."""
        number = self._order.next_number()
        contents = yield from self._gather(names)
        paths, self._unsynced_paths = self._unsynced_paths, []
        online = {folder.path for folder in self._folders.online()}
        directories, self._unsynced_folders = sorted(self._unsynced_folders & online), set()
        return CheckpointPlan(self._files, self._order, contents, paths, directories, number).run

    def _gather(self, names: Sequence[str]) -> Steps[dict[str, Offsets]]:
        # The files keep the entries of partitions that are not loaded.
        table = self._table
        unserved = table.pending.keys() | table.failed.keys()
        contents = yield from gather(names, self._folders.online(), table.logs, table.homes, unserved)
        for name in names:
            self._moves.add_offsets(name, contents)
        return contents
