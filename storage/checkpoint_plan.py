"""Checkpoint files on their way to the disk: made on the loop, written on any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from posixpath import dirname
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.files import Files


class CheckpointOrder:
    """Shared by all plans of a broker: what was written last, and one writer at a time."""

    __slots__ = ("last_number", "lock", "numbers_written")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.last_number = 0
        self.numbers_written: dict[str, int] = {}


class CheckpointPlan:
    """Contents of some checkpoint files as they were when the plan was made.

    Plans may run in any order: a file that a younger plan has written already is left as it is.
    """

    __slots__ = ("_contents", "_directories", "_files", "_number", "_order", "_paths", "done")

    def __init__(
        self,
        files: Files,
        order: CheckpointOrder,
        contents: Mapping[str, bytes],
        paths: Sequence[str] = (),
        directories: Sequence[str] = (),
    ) -> None:
        """`contents` by path, of files of data folders. `paths` (small files of partitions that were written without a
        sync) and `directories` (data folders) are synced as well."""
        self._files = files
        self._order = order
        self._contents = contents
        self._paths = paths
        self._directories = directories
        order.last_number += 1
        self._number = order.last_number
        self.done = False

    def run(self, *, sync: bool = True) -> dict[str, OSError]:
        """Returns what went wrong, by data folder: one that fails keeps the others from nothing. Without `sync` it
        costs no wait for the disk, and outlasts only a crash of the process."""
        order = self._order
        errors: dict[str, OSError] = {}
        with order.lock:
            for path in self._paths if sync else ():
                self._in_folder(dirname(dirname(path)), errors, partial(self._files.sync_file, path))
            for directory in self._directories if sync else ():
                self._in_folder(directory, errors, partial(self._files.sync_directory, directory))
            for path, data in self._contents.items():
                if order.numbers_written.get(path, 0) < self._number:
                    write = partial(self._files.write_atomically, path, data, sync=sync)
                    if self._in_folder(dirname(path), errors, write, missing_is_gone=False):
                        order.numbers_written[path] = self._number
        self.done = not errors
        return errors

    @staticmethod
    def _in_folder(
        folder: str, errors: dict[str, OSError], action: Callable[[], None], missing_is_gone: bool = True
    ) -> bool:
        """Whether the action was done. A partition may have been removed meanwhile, and what belonged to it."""
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
