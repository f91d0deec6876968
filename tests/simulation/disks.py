"""A disk that a power cut may leave with anything between what was synced and what was written."""

from __future__ import annotations

import posixpath
import random

from tests.storage.memory_files import MemoryFile, MemoryFiles


class _File(MemoryFile):
    def hold(self) -> int:
        """Hold the file without a descriptor of the operating system, as the simulation reads by none."""
        self._held_content = self._content()
        self.holds += 1
        return -1


class Disk(MemoryFiles):
    def create(self, path: str) -> MemoryFile:
        super().create(path)
        return _File(self, path)

    def open(self, path: str) -> MemoryFile:
        return _File(self, path)

    def count(self, operation: str, path: str) -> int | None:
        """Count only while there are faults, whose place among the calls matters, and nothing else uses the counts."""
        return super().count(operation, path) if self._faults or self._broken else None

    def lose_some(self, rng: random.Random) -> None:
        """Keep a random number of the first unsynced bytes of each file, and of the first new names of each folder.

        File systems with a journal keep names in this order; without it, a log whose first segment was lost could not
        be distinguished from one whose first segment was deleted.
        """
        new_names: dict[str, list[str]] = {}
        for path, content in self._contents.items():
            data, durable = bytes(content.data), content.durable
            if data.startswith(durable):
                content.durable = data[: rng.randint(len(durable), len(data))]
            elif rng.random() < 0.5:
                content.durable = data
            if path not in self._durable_names:
                new_names.setdefault(posixpath.dirname(path), []).append(path)
        for paths in new_names.values():
            for path in paths[: rng.randint(0, len(paths))]:
                self._durable_names[path] = self._contents[path]
        self.crash()
