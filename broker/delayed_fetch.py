"""A Fetch that waits for records: watches its partitions and looks again when one of them moves.

Looking again is put off to the loop's next turn, so an append is not held up by its readers, and several appends of one
turn cost one look.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.handlers.k01_fetch import FetchRead
    from protocol.messages import FetchResponse
    from replication.partition import Partition


class DelayedFetch:
    """`future` gets the response; cancelling it (the client left) gives everything back."""

    __slots__ = ("_loop", "_read", "_timer", "_turn", "_watched", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop, read: FetchRead, max_wait_s: float) -> None:
        self._loop = loop
        self._read = read
        self._turn: asyncio.Handle | None = None
        self.future: asyncio.Future[FetchResponse] = loop.create_future()
        self.future.add_done_callback(self._done)
        self._timer = loop.call_later(max_wait_s, self._answer)
        read.release()
        moved = self._moved
        self._watched: list[tuple[Partition, int]] = [(part, part.watch(moved)) for part in read.partitions()]

    def _moved(self) -> None:
        if self._turn is None:
            self._turn = self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._turn = None
        if self.future.done():
            return
        self._read.collect()
        if self._read.satisfied:
            self.future.set_result(self._read.response())
        else:
            self._read.release()

    def _answer(self) -> None:
        if not self.future.done():
            self._read.collect()
            self.future.set_result(self._read.response())

    def _done(self, future: asyncio.Future[FetchResponse]) -> None:
        self._timer.cancel()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        for partition, handle in self._watched:
            partition.unwatch(handle)
        self._watched.clear()
