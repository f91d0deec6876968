"""The state of each partition in the data folders of this broker: loaded, not loaded yet, or failed; and the folders of
partitions that are about to be created.

A folder with its files needs the file system's journal, which may keep a caller waiting for 20 ms while it commits.
Where many partitions are created, a thread makes their folders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gregor.protocol.ids import ZERO_UUID, Uuid
from gregor.storage.folders.identity import PARTITION_METADATA_FILE, format_partition_metadata
from gregor.storage.folders.names import folder_name
from gregor.storage.log.epochs import FILE_NAME as EPOCHS_FILE
from gregor.storage.log.epochs import format_epochs
from gregor.storage.segment.segment import make_empty_files

if TYPE_CHECKING:
    from gregor.protocol.topic_partition import TopicPartition
    from gregor.storage.folders.data_folder import DataFolder
    from gregor.storage.fs.files import Files
    from gregor.storage.log.log import Log


class PendingFolder(NamedTuple):
    """A partition's folder that is not loaded yet."""

    folder: DataFolder
    path: str
    unchecked_bytes: int


class LogTable:
    """A partition is in one of `logs`, `pending` and `failed`; of all but the pending ones `homes` has the folder."""

    __slots__ = ("failed", "high_watermarks", "homes", "logs", "pending", "unlinkable")

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.pending: dict[TopicPartition, PendingFolder] = {}
        self.failed: dict[TopicPartition, Exception] = {}
        self.homes: dict[TopicPartition, DataFolder] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        """From the checkpoints that the last start has read."""
        self.unlinkable: list[str] = []
        """Leftovers, files and folders: for a thread to remove."""


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
    """Folders that were made in advance, until the logs in them are created."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._made: dict[TopicPartition, NewFolder] = {}

    def plan(self, partitions: Iterable[NewPartition], folders: Sequence[DataFolder]) -> Callable[[], None]:
        """Choose a data folder for each, as for a log that is created; returns the call that makes the folders, on any
        thread. One that cannot be made is left to the creation of its log."""
        counts = [folder.partitions_count for folder in folders]
        planned = []
        for one in partitions if folders else ():
            at = counts.index(min(counts))
            counts[at] += 1
            planned.append(NewFolder(one, folders[at], f"{folders[at].path}/{folder_name(*one.key)}"))
        return partial(self._make, planned)

    def _make(self, planned: Iterable[NewFolder]) -> None:
        files = self._files
        for one in planned:
            if files.exists(one.path):
                continue
            _, topic_id, leader_epoch = one.partition
            try:
                files.make_directory(one.path)
                if topic_id != ZERO_UUID:
                    metadata = format_partition_metadata(topic_id)
                    files.write_atomically(f"{one.path}/{PARTITION_METADATA_FILE}", metadata, sync=False)
                make_empty_files(files, one.path, 0)
                if leader_epoch >= 0:
                    files.write_atomically(f"{one.path}/{EPOCHS_FILE}", format_epochs([(leader_epoch, 0)]), sync=False)
            except OSError:
                with suppress(OSError):
                    files.remove_directory(one.path)
                return
            self._made[one.partition.key] = one

    def pop(self, key: TopicPartition) -> NewFolder | None:
        """Return the folder that was made for a partition."""
        return self._made.pop(key, None)

    def discard(self) -> None:
        """Remove the folders of partitions that were not created."""
        made, self._made = self._made, {}
        for one in made.values():
            with suppress(OSError):
                self._files.remove_directory(one.path)
