"""Python's cyclic garbage collector, kept from holding the event loop up.

A full collection visits every object: half a second with 10,000 partitions. Nearly all objects live until the broker
stops, so they are frozen from time to time (gc.freeze), and collections visit only the objects made since. The price: a
reference cycle that was frozen while it was still in use is never collected. Therefore objects that come and go in
numbers, connections above all, break their cycles when they end.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable

YOUNG_OBJECTS = 5_000
"""New objects between two collections of the youngest generation: a collection lasts 1 ms."""
YOUNG_COLLECTIONS = 1
"""After more of them than this the middle generation is collected with the youngest: at most three times as many
objects, in 3 to 6 ms. With twice the objects and one more collection it lasted up to 17 ms while 10,000 partitions were
created, measured."""
MANY_OBJECTS = 20_000
"""New objects up to which the oldest generation is collected in any case, in some 5 ms."""
MANY_BYTES = 4 * 1024 * 1024
"""Growth of the process's memory by which more new objects than that are in use: they are frozen instead of collected.
Without it most of them are gone, such as those of a scrape, and few are left to visit."""
TOO_MANY_OBJECTS = 400_000
"""They are frozen even if the memory has not grown: objects that were removed have left room for them."""
EVERY_S = 60.0


def most_new_objects(young: int, young_collections: int, middle_collections: int) -> int:
    """Return how many objects there can be that were made since the last full collection, by the collector's counts: a
    collection begins when its count is above the threshold."""
    of_young = YOUNG_OBJECTS + 1
    return young + of_young * (young_collections + middle_collections * (YOUNG_COLLECTIONS + 2))


def resident_bytes() -> int:
    """Return the resident memory of the process; 0 where the system does not show it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


class GcPolicy:
    """Decides when to collect, and when to freeze. The interpreter's own count of blocks would visit all memory of the
    process: 100 ms for 125 MB that had rested on a virtual machine where such memory is slow, measured."""

    def __init__(
        self,
        resident_bytes: Callable[[], int] = resident_bytes,
        collect: Callable[[], object] = gc.collect,
        freeze: Callable[[], None] = gc.freeze,
        counts: Callable[[], tuple[int, int, int]] = gc.get_count,
    ) -> None:
        self._resident_bytes = resident_bytes
        self._collect = collect
        self._freeze = freeze
        self._counts = counts
        self._frozen_bytes = 0
        """The least memory of the process since objects were frozen."""
        self._most_objects = 0
        """The objects that were made since then, at most."""

    def begin(self) -> None:
        """Freeze the objects of the start-up; from now on only `collect` collects the oldest generation."""
        self._collect()
        self._freeze_all()
        gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, 1_000_000)

    def collect(self) -> None:
        """Collect the objects made since the last call, or freeze them if they are too many for one stretch."""
        new_objects = most_new_objects(*self._counts())
        self._most_objects += new_objects
        now_bytes = self._resident_bytes()
        self._frozen_bytes = min(self._frozen_bytes, now_bytes)
        grown = now_bytes - self._frozen_bytes > MANY_BYTES
        if (grown and self._most_objects > MANY_OBJECTS) or new_objects > TOO_MANY_OBJECTS:
            self._freeze_all()
        else:
            self._collect()

    def _freeze_all(self) -> None:
        self._freeze()
        self._frozen_bytes = self._resident_bytes()
        self._most_objects = 0

    async def run(self) -> None:
        """Collect once a minute."""
        while True:
            await asyncio.sleep(EVERY_S)
            self.collect()
