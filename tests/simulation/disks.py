"""A disk that a power cut may leave with anything between what was synced and what was written."""

from __future__ import annotations

import random

from storage.memory_files import MemoryFiles


class Disk(MemoryFiles):
    def lose_some(self, rng: random.Random) -> None:
        """Of each file's unsynced bytes only the first survive, so many as chance will have it; of new names some."""
        for path, content in sorted(self._contents.items()):
            data, durable = bytes(content.data), content.durable
            if data.startswith(durable):
                content.durable = data[: rng.randint(len(durable), len(data))]
            elif rng.random() < 0.5:
                content.durable = data
            if path not in self._durable_names and rng.random() < 0.5:
                self._durable_names[path] = content
        self.crash()
