"""How long a loop keeps its callers waiting while something goes on: a probe for tests."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable
from typing import TypeVar

ResultT = TypeVar("ResultT")


def queued_s() -> float:
    """How long this thread was ready to run and another process had the processor, where Linux tells it."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except OSError:
        return 0.0


async def longest_step_ms(work: Awaitable[ResultT]) -> tuple[ResultT, float, float]:
    """(what came of it, the longest time between two turns, the most processor time between two turns), in ms.

    The first counts waits, for a disk or for the lock of the interpreter, but not what other processes took."""
    done = asyncio.ensure_future(work)
    longest = longest_busy = 0.0
    gc.disable()  # other tests' garbage is none of its work
    try:
        while not done.done():
            queued, begin, busy = queued_s(), time.perf_counter(), time.thread_time()
            await asyncio.sleep(0)
            lasted, busy = time.perf_counter() - begin, time.thread_time() - busy
            longest = max(longest, lasted - (queued_s() - queued))
            longest_busy = max(longest_busy, busy)
    finally:
        gc.enable()
    return done.result(), longest * 1000, longest_busy * 1000
