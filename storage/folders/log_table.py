"""The state of each partition in the data folders of this broker: loaded, not loaded yet, or failed; and the folders of
partitions that are about to be created.

A folder with its files needs the file system's journal, which may keep a caller waiting for 20 ms while it commits.
Where many partitions are created, a thread makes their folders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from gregor.protocol.ids import ZERO_UUID, Uuid
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import ITEMS_PER_STEP, WalkableDict
from gregor.storage.folders.identity import PARTITION_METADATA_FILE, format_partition_metadata
from gregor.storage.folders.names import folder_name
from gregor.storage.log.epochs import FILE_NAME as EPOCHS_FILE
from gregor.storage.log.epochs import format_epochs
from gregor.storage.segment.segment import make_empty_files

if TYPE_CHECKING:
    from gregor.protocol.turns import Steps
    from gregor.storage.folders.data_folder import DataFolder
    from gregor.storage.fs.files import Files
    from gregor.storage.log.log import Log


class PendingFolder(NamedTuple):
    """A partition's folder that is not loaded yet."""

    folder: DataFolder
    path: str
    unchecked_bytes: int


class ServedLogs(WalkableDict[TopicPartition, "Log"]):
    """The logs that are served. The flusher of each marks it here when a check of flushes has to visit it: of thousands
    of logs, most need none for hours. Likewise `moved` has those whose high watermark no checkpoint has."""

    __slots__ = ("_marked", "moved")

    def __init__(self) -> None:
        super().__init__()
        self._marked: set[TopicPartition] = set()
        self.moved: set[TopicPartition] = set()

    def __setitem__(self, key: TopicPartition, log: Log) -> None:
        super().__setitem__(key, log)
        log.flusher.mark_in(self._marked, key)
        log.offsets.note_moves_in(self.moved, key)

    def __delitem__(self, key: TopicPartition) -> None:
        super().__delitem__(key)
        self.moved.add(key)

    def marked(self) -> Iterator[Log]:
        """Yield the logs that are marked now. A mark ends here when its reason has ended, or the log is gone."""
        for key in list(self._marked):
            log = self.get(key)
            if log is not None and log.flusher.needs_check:
                yield log
            else:
                self._marked.discard(key)

    def acknowledge_moves(self) -> Steps[None]:
        """Note that a checkpoint is about to get the present high watermarks."""
        for count in range(len(self.moved)):
            if (log := self.get(self.moved.pop())) is not None:
                log.offsets.acknowledge_move()
            if not count % ITEMS_PER_STEP:
                yield None


class LogTable:
    """A partition is in one of `logs`, `pending` and `failed`; of all but the pending ones `homes` has the folder."""

    __slots__ = ("failed", "high_watermarks", "homes", "logs", "pending", "unlinkable")

    def __init__(self) -> None:
        self.logs = ServedLogs()
        self.pending: dict[TopicPartition, PendingFolder] = {}
        self.failed: dict[TopicPartition, Exception] = {}
        self.homes: dict[TopicPartition, DataFolder] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        """From the checkpoints that the last start has read."""
        self.unlinkable: list[str] = []
        """Leftovers, files and folders: for a thread to remove."""

    def pop_unlinkable(self) -> list[str]:
        """Return the leftovers that were found since the last call."""
        paths, self.unlinkable = self.unlinkable, []
        return paths


class NewPartition(NamedTuple):
    """A partition that is about to be created. `leader_epoch` is -1 unless this broker leads it."""

    key: TopicPartition
    topic_id: Uuid
    leader_epoch: int


class NewFolder(NamedTuple):
    """The folder of a new partition, with the files of an empty log."""

    partition: NewPartition
    folder: DataFolder
    path: str


class NewFolders:
    """Folders that are made in advance, until the logs in them are created. The creation may be cancelled while a
    thread makes folders: those that it has made are removed, too."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._plans: list[_Plan] = []

    def plan(self, partitions: Iterable[NewPartition], folders: Sequence[DataFolder]) -> Callable[[], None]:
        """Choose a data folder for each, as for a log that is created; returns the call that makes the folders, on any
        thread. One that cannot be made is left to the creation of its log."""
        counts = [folder.partitions_count for folder in folders]
        planned = []
        for one in partitions if folders else ():
            at = counts.index(min(counts))
            counts[at] += 1
            planned.append(NewFolder(one, folders[at], f"{folders[at].path}/{folder_name(*one.key)}"))
        plan = _Plan(self._files, planned)
        self._plans = [*filter(_Plan.is_needed, self._plans), plan]
        return plan.make_all

    def pop(self, key: TopicPartition) -> NewFolder | None:
        """Return the folder that was made for a partition. It is not made or removed any more."""
        for plan in self._plans:
            if (made := plan.pop(key)) is not None:
                return made
        return None

    def discard(self) -> None:
        """Remove the folders of partitions that were not created."""
        for plan in self._plans:
            plan.abandon()
        self._plans = [*filter(_Plan.is_needed, self._plans)]


class _Plan:
    """The folders of one call. The lock is held while one folder is made or removed, so that a log which is created
    meanwhile finds its folder as it is."""

    def __init__(self, files: Files, planned: Iterable[NewFolder]) -> None:
        self._files = files
        self._lock = Lock()
        self._waiting = {one.partition.key: one for one in planned}
        self._made: dict[TopicPartition, NewFolder] = {}
        self._is_running = False
        self._is_abandoned = False

    def is_needed(self) -> bool:
        """Return whether there is a folder that is not used yet, or may be made."""
        return bool(self._waiting or self._made or self._is_running)

    def make_all(self) -> None:
        self._is_running = True
        while self._make_one():
            pass
        with self._lock:
            self._is_running = False
            is_abandoned = self._is_abandoned
        if is_abandoned:
            self._remove_made()

    def pop(self, key: TopicPartition) -> NewFolder | None:
        if key not in self._waiting and key not in self._made and not self._is_running:
            return None
        with self._lock:
            self._waiting.pop(key, None)
            return self._made.pop(key, None)

    def abandon(self) -> None:
        """Remove the folders that were made, here or, if it is at work, on the thread that makes them."""
        with self._lock:
            self._is_abandoned = True
            self._waiting.clear()
            is_running = self._is_running
        if not is_running:
            self._remove_made()

    def _make_one(self) -> bool:
        """Make the next folder; return False if there is none."""
        with self._lock:
            if not self._waiting:
                return False
            key, one = next(iter(self._waiting.items()))
            del self._waiting[key]
            if self._files.exists(one.path):
                return True
            try:
                self._make(one)
            except OSError:
                with suppress(OSError):
                    self._files.remove_directory(one.path)
                self._waiting.clear()
                return False
            self._made[key] = one
            return True

    def _make(self, one: NewFolder) -> None:
        files = self._files
        _, topic_id, leader_epoch = one.partition
        files.make_directory(one.path)
        if topic_id != ZERO_UUID:
            metadata = format_partition_metadata(topic_id)
            files.write_atomically(f"{one.path}/{PARTITION_METADATA_FILE}", metadata, sync=False)
        make_empty_files(files, one.path, 0)
        if leader_epoch >= 0:
            files.write_atomically(f"{one.path}/{EPOCHS_FILE}", format_epochs([(leader_epoch, 0)]), sync=False)

    def _remove_made(self) -> None:
        while self._made:
            with self._lock:
                if not self._made:
                    return
                _, one = self._made.popitem()
                with suppress(OSError):
                    self._files.remove_directory(one.path)
