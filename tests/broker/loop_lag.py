"""A probe that measures how long an event loop delays its callers during some work. Each test measures once."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable
from typing import NamedTuple, TypeVar

from tests.support.stolen_time import MAX_SHARE, StolenTime, waited_s

LIMIT_MS = 10

ResultT = TypeVar("ResultT")


class LoopLag(NamedTuple):
    """The longest time between two turns of a loop.

    `wall_ms` counts waits, for a disk or for the lock of the interpreter, but not those for a processor on which
    other processes run; `busy_ms` is processor time, of another turn perhaps; `stolen_share` is of the whole machine.
    """

    wall_ms: float
    busy_ms: float
    stolen_share: float

    def within(self, limit_ms: float = LIMIT_MS) -> bool:
        """Whether the limit holds: of processor time always, of wall time where next to nothing was stolen."""
        return self.busy_ms < limit_ms and (self.wall_ms < limit_ms or not self.stolen_share < MAX_SHARE)

    def __str__(self) -> str:
        return (
            f"longest turn {self.wall_ms:.1f} ms, on the processor {self.busy_ms:.1f} ms, "
            f"{self.stolen_share:.1%} of the machine's time stolen"
        )


async def loop_lag_during(work: Awaitable[ResultT]) -> tuple[ResultT, LoopLag]:
    """Return the result of the work, and the lag of the loop meanwhile."""
    stolen = StolenTime()
    done = asyncio.ensure_future(work)
    longest = longest_busy = 0.0
    gc.disable()  # the collection of other tests' objects is not part of the work
    try:
        while not done.done():
            queued, begin, busy = waited_s(), time.perf_counter(), time.thread_time()
            await asyncio.sleep(0)
            lasted, busy = time.perf_counter() - begin, time.thread_time() - busy
            longest = max(longest, lasted - (waited_s() - queued))
            longest_busy = max(longest_busy, busy)
    finally:
        gc.enable()
    return done.result(), LoopLag(longest * 1000, longest_busy * 1000, stolen.share())
