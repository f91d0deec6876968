"""Checkpoint files on their way to the disk: made on the loop, written on any thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
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
        """`contents` by path. `paths` (small files written without a sync) and `directories` are synced as well."""
        self._files = files
        self._order = order
        self._contents = contents
        self._paths = paths
        self._directories = directories
        order.last_number += 1
        self._number = order.last_number
        self.done = False

    def run(self, *, sync: bool = True) -> None:
        """Raises OSError. Without `sync` it costs no wait for the disk, and outlasts only a crash of the process."""
        order = self._order
        with order.lock:
            for path in self._paths if sync else ():
                try:
                    self._files.sync_file(path)
                except FileNotFoundError:
                    continue  # its partition was removed meanwhile
            for directory in self._directories if sync else ():
                try:
                    self._files.sync_directory(directory)
                except FileNotFoundError:
                    continue
            for path, data in self._contents.items():
                if order.numbers_written.get(path, 0) < self._number:
                    self._files.write_atomically(path, data, sync=sync)
                    order.numbers_written[path] = self._number
        self.done = True
