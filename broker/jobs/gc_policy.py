"""Python's cyclic garbage collector, kept from stalling the loop.

A full collection looks at every object there is: half a second with 10,000 partitions. Nearly all of them live for as
long as the broker does, so what is there is set aside from time to time (gc.freeze), and collections look only at what
was made since. The price: garbage that is a cycle and was set aside while it was still in use stays for good. So
whatever comes and goes in numbers, connections above all, takes its cycles apart when it ends.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable

YOUNG_OBJECTS = 10_000
"""New objects between two collections of the young: a collection takes some 2 ms."""
MANY_BLOCKS = 40_000
"""Growth, in allocated blocks, that is set aside instead of being looked at."""
EVERY_S = 60.0


class GcPolicy:
    """Decides when there is something to set aside."""

    def __init__(
        self,
        allocated_blocks: Callable[[], int] = sys.getallocatedblocks,
        collect: Callable[[], object] = gc.collect,
        freeze: Callable[[], None] = gc.freeze,
    ) -> None:
        self._allocated_blocks = allocated_blocks
        self._collect = collect
        self._freeze = freeze
        self._frozen_blocks = 0

    def begin(self) -> None:
        """After start-up: what it made stays, and collections of the oldest generation are left to `look`."""
        self._collect()
        self._set_aside()
        gc.set_threshold(YOUNG_OBJECTS, 2, 1_000_000)

    def look(self) -> None:
        """Collect what was made since the last look, or set it aside if it is too much for one stretch."""
        blocks = self._allocated_blocks()
        self._frozen_blocks = min(self._frozen_blocks, blocks)
        if blocks - self._frozen_blocks > MANY_BLOCKS:
            self._set_aside()
        else:
            self._collect()

    def _set_aside(self) -> None:
        self._freeze()
        self._frozen_blocks = self._allocated_blocks()

    async def look_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            self.look()
