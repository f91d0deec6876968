"""How long a loop keeps its callers waiting while something goes on: a probe for tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

ResultT = TypeVar("ResultT")


async def longest_step_ms(work: Awaitable[ResultT]) -> tuple[ResultT, float, float]:
    """(what came of it, the longest time between two turns, the most processor time between two turns), in ms.

    The first also grows when another process has the processor, or the disk is waited for; the second does not."""
    done = asyncio.ensure_future(work)
    longest = longest_busy = 0.0
    while not done.done():
        begin, busy = time.perf_counter(), time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.perf_counter() - begin)
        longest_busy = max(longest_busy, time.thread_time() - busy)
    return done.result(), longest * 1000, longest_busy * 1000
