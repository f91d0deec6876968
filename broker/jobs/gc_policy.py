"""Python's cyclic garbage collector, kept from holding the event loop up.

A full collection visits every object: half a second with 10,000 partitions. Nearly all objects live until the broker
stops, so they are frozen from time to time (gc.freeze), and collections visit only the objects made since. The price: a
reference cycle that was frozen while it was still in use is never collected. Therefore objects that come and go in
numbers, connections above all, break their cycles when they end.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable

YOUNG_OBJECTS = 5_000
"""New objects between two collections of the youngest generation: a collection lasts 1 ms."""
YOUNG_COLLECTIONS = 1
"""After more of them than this the middle generation is collected with the youngest: at most three times as many
objects, in 3 to 6 ms. With twice the objects and one more collection it lasted up to 17 ms while 10,000 partitions were
created, measured."""
MANY_BLOCKS = 40_000
"""Growth, in allocated blocks, from which on the new objects are frozen instead of collected."""
MANY_OBJECTS = 20_000
"""New objects from which on the blocks are counted: that visits all memory of the process, which lasts 100 ms where
125 MB have rested for seconds on a virtual machine that makes such memory slow."""
EVERY_S = 60.0


def most_new_objects(young: int, young_collections: int, middle_collections: int) -> int:
    """Return how many objects there can be that were made since the last full collection, by the collector's counts: a
    collection begins when its count is above the threshold."""
    of_young = YOUNG_OBJECTS + 1
    return young + of_young * (young_collections + middle_collections * (YOUNG_COLLECTIONS + 2))


class GcPolicy:
    """Decides when to collect, and when to freeze."""

    def __init__(
        self,
        allocated_blocks: Callable[[], int] = sys.getallocatedblocks,
        collect: Callable[[], object] = gc.collect,
        freeze: Callable[[], None] = gc.freeze,
        counts: Callable[[], tuple[int, int, int]] = gc.get_count,
    ) -> None:
        self._allocated_blocks = allocated_blocks
        self._collect = collect
        self._freeze = freeze
        self._counts = counts
        self._frozen_blocks = 0
        self._most_objects = 0
        """The objects that were made and not frozen, at most."""

    def begin(self) -> None:
        """Freeze the objects of the start-up; from now on only `collect` collects the oldest generation."""
        self._collect()
        self._freeze_all()
        gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, 1_000_000)

    def collect(self) -> None:
        """Collect the objects made since the last call, or freeze them if they are too many for one stretch."""
        self._most_objects += most_new_objects(*self._counts())
        if self._most_objects > MANY_OBJECTS:
            blocks = self._allocated_blocks()
            self._frozen_blocks = min(self._frozen_blocks, blocks)
            self._most_objects = blocks - self._frozen_blocks
            if self._most_objects > MANY_BLOCKS:
                self._freeze_all()
                return
        self._collect()

    def _freeze_all(self) -> None:
        self._freeze()
        self._frozen_blocks = self._allocated_blocks()
        self._most_objects = 0

    async def run(self) -> None:
        """Collect once a minute."""
        while True:
            await asyncio.sleep(EVERY_S)
            self.collect()
