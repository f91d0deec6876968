"""Plans for writing checkpoint files: made on the loop, run on any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from posixpath import dirname
from typing import TYPE_CHECKING

from gregor.protocol.topic_partition import TopicPartition
from gregor.storage.folders.checkpoints import format_offsets

if TYPE_CHECKING:
    from gregor.storage.fs.files import Files


MAX_SINGLE_SYNCS = 200
"""More small files than this in one data folder are synced with its whole file system: 10,000 new partitions, each by
itself, kept the disk and 5 % of a processor busy for 25 s, measured."""


class CheckpointOrder:
    """Shared by all plans of a broker: the plans that were written last, and a lock for one writer at a time."""

    __slots__ = ("last_number", "lock", "numbers_written", "offsets_written")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.last_number = 0
        self.numbers_written: dict[str, int] = {}
        self.offsets_written: dict[str, tuple[Mapping[TopicPartition, int], bool]] = {}
        """The content of each file of offsets, and whether it was synced."""

    def next_number(self) -> int:
        """Return the number of a plan whose contents are gathered from now on: it must not overwrite a younger one."""
        self.last_number += 1
        return self.last_number


class CheckpointPlan:
    """Contents of some checkpoint files as they were when the plan was made.

    Plans may run in any order: a file that a younger plan has written already is left as it is.
    """

    __slots__ = ("_contents", "_directories", "_files", "_number", "_order", "_paths", "done")

    def __init__(
        self,
        files: Files,
        order: CheckpointOrder,
        contents: Mapping[str, bytes | Mapping[TopicPartition, int]],
        paths: Sequence[str] = (),
        directories: Sequence[str] = (),
        number: int | None = None,
    ) -> None:
        """`contents` by path, of files of data folders: bytes, or offsets that are formatted when they are written, and
        not written where the file holds just these. `paths` (small files of partitions that were written without a
        sync) and `directories` (data folders) are synced as well. `number` is that of the `order` when the first of
        the contents was gathered; None: just now."""
        self._files = files
        self._order = order
        self._contents = contents
        self._paths = paths
        self._directories = directories
        self._number = order.next_number() if number is None else number
        self.done = False

    def run(self, *, sync: bool = True) -> dict[str, OSError]:
        """Write the files; returns errors by data folder: one that fails does not affect the others. Without `sync`
        nothing waits for the disk, and the files survive only a crash of the process."""
        order = self._order
        errors: dict[str, OSError] = {}
        if sync:
            self._sync_paths(errors)  # before the lock: no other writer waits for the disk's slowest work
        with order.lock:
            if sync:
                self._sync_directories(errors)
            for path, data in self._contents.items():
                if order.numbers_written.get(path, 0) < self._number:
                    if self._stands(path, data, sync):
                        order.numbers_written[path] = self._number
                        continue
                    text = data if isinstance(data, bytes) else format_offsets(data)
                    write = partial(self._files.write_atomically, path, text, sync=sync)
                    order.offsets_written.pop(path, None)
                    if self._in_folder(dirname(path), errors, write, missing_is_gone=False):
                        order.numbers_written[path] = self._number
                        if not isinstance(data, bytes):
                            order.offsets_written[path] = data, sync
        self.done = not errors
        return errors

    def sync_directories(self) -> dict[str, OSError]:
        """Sync the data folders and do nothing else; returns the errors as `run` does."""
        errors: dict[str, OSError] = {}
        self._sync_directories(errors)
        return errors

    def _sync_directories(self, errors: dict[str, OSError]) -> None:
        for directory in self._directories:
            self._in_folder(directory, errors, partial(self._files.sync_directory, directory))

    def _sync_paths(self, errors: dict[str, OSError]) -> None:
        by_folder: dict[str, list[str]] = {}
        for path in self._paths:
            by_folder.setdefault(dirname(dirname(path)), []).append(path)
        for folder, paths in by_folder.items():
            if len(paths) > MAX_SINGLE_SYNCS:
                try:
                    if self._files.sync_everything(folder):
                        continue
                except OSError as error:
                    errors[folder] = error
            for path in paths:
                self._in_folder(folder, errors, partial(self._files.sync_file, path))

    def _stands(self, path: str, data: bytes | Mapping[TopicPartition, int], sync: bool) -> bool:
        """Return whether the file has this content already, and is synced if it must be."""
        found = self._order.offsets_written.get(path)
        return found is not None and found[0] == data and (found[1] or not sync)

    @staticmethod
    def _in_folder(
        folder: str, errors: dict[str, OSError], action: Callable[[], None], missing_is_gone: bool = True
    ) -> bool:
        """Return whether the action was done. A partition may have been removed meanwhile, with its files."""
        if folder in errors:
            return False
        try:
            action()
        except FileNotFoundError as error:
            if not missing_is_gone:
                errors[folder] = error
            return False
        except OSError as error:
            errors[folder] = error
            return False
        return True
