"""A fetch of many partitions, which are read in turns of the event loop: thousands of them need more than one.

Unlike a fetch of few (gregor.broker.fetch.delayed), it watches its partitions before it reads them: some of them change
between the reads of the first and of the last one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from gregor.broker.fetch.watched_partitions import WatchedPartition, rest_s
from gregor.protocol.turns import ITEMS_PER_STEP

if TYPE_CHECKING:
    from gregor.broker.fetch.consumer import FetchRead
    from gregor.protocol.messages import FetchResponse
    from gregor.protocol.turns import Gate, Turns


async def fetch_in_turns(
    loop: asyncio.AbstractEventLoop, gate: Gate, read: FetchRead, count: int, max_wait_s: float
) -> FetchResponse:
    """Return the response to a fetch of `count` partitions once there are enough records or the time is over."""
    end_s = loop.time() + max_wait_s
    turns = gate.turns()
    moved = asyncio.Event()
    watched: list[WatchedPartition] = []
    upper_offset, rest = read.upper_offset, 0.0
    try:
        if max_wait_s > 0:
            for begin in range(0, count, ITEMS_PER_STEP):
                partitions = read.partitions(begin, begin + ITEMS_PER_STEP)
                watched.extend(WatchedPartition(partition, upper_offset, moved.set) for partition in partitions)
                await turns.next()
        while True:
            moved.clear()
            await _collect(read, count, turns)
            if read.missing:
                read.release()
                await read.fetch_missing()
                continue
            if read.satisfied or loop.time() >= end_s:
                return read.response()
            read.release()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(end_s):
                    if rest:
                        await asyncio.sleep(rest)
                    await moved.wait()
            rest = rest_s(count)
    finally:
        for partition in watched:
            partition.unwatch()
        read.release()


async def _collect(read: FetchRead, count: int, turns: Turns) -> None:
    for begin in range(0, count, ITEMS_PER_STEP):
        read.collect(begin, begin + ITEMS_PER_STEP)
        await turns.next()
