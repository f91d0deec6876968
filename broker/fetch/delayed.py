"""A fetch that waits for records: it reads again when one of its partitions changes.

The read is deferred to the loop's next turn, so an append does not wait for its readers, and several appends of one
turn cost one read. Consumers of one partition may be hundreds: those for which the turn has no time are served in later
ones. After a read of many partitions that found too few records the next one is deferred for longer. Data that is not
in the page cache is read on threads first, without blocking the loop.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from gregor.broker.fetch.watched_partitions import WatchedPartition, rest_s
from gregor.broker.log import logger
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import FetchResponse

if TYPE_CHECKING:
    from gregor.broker.fetch.consumer import FetchRead
    from gregor.broker.fetch.reads import RepeatedRead
    from gregor.broker.jobs.turns import TurnQueue


class WaitingFetch(Deferred[FetchResponse], ABC):
    """Completed when there are enough records or the time is over. Its end, even a cancellation, frees everything."""

    __slots__ = ("_fetch", "_is_due", "_loop", "_overdue", "_read", "_timer")

    whose = ""
    """Names the client in the log."""

    def __init__(self, loop: asyncio.AbstractEventLoop, read: RepeatedRead, max_wait_s: float) -> None:
        super().__init__()
        self._loop = loop
        self._read = read
        self._overdue = False
        self._fetch: asyncio.Task[None] | None = None
        self._is_due = False
        """A read is scheduled already."""
        self._timer = loop.call_later(max_wait_s, self._end_wait)
        self.then(self._end)
        read.release()
        if read.missing:
            self._fetch_missing()

    def _end(self, _done: object) -> None:
        self._timer.cancel()
        if self._fetch is not None:
            self._fetch.cancel()
        self._let_go()

    @abstractmethod
    def _let_go(self) -> None:
        """Release what the fetch holds, at its end."""

    def _wait_on(self) -> None:
        """Continue to wait, after a read that found too few records."""

    def moved(self) -> None:
        """Note that a partition has changed, and read again."""
        if not self._is_due:
            self._is_due = True
            self._read_soon()

    def _read_soon(self) -> None:
        self._loop.call_soon(self._read_again)

    def _end_wait(self) -> None:
        self._overdue = True
        self._read_again()

    def _read_again(self) -> None:
        self._is_due = False
        if self.done or self._fetch is not None:
            return
        read = self._read
        try:
            read.collect()
            if read.missing:
                read.release()
                self._fetch_missing()
                return
            if not read.satisfied and not self._overdue:
                read.release()
                self._wait_on()
                return
            response = read.response()
        except Exception:  # a bug: the connection must not wait without end
            logger.exception("a waiting Fetch%s failed", self.whose)
            read.release()
            response = FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        self.complete(response)

    def _fetch_missing(self) -> None:
        self._fetch = self._loop.create_task(self._read.fetch_missing())
        self._fetch.add_done_callback(self._fetched)

    def _fetched(self, fetch: asyncio.Task[None]) -> None:
        self._fetch = None
        if not fetch.cancelled() and (error := fetch.exception()) is not None:
            # Not an OSError: the next `collect` reports those. Each of `missing` names the folder of its partition.
            logger.error(
                "a waiting Fetch%s failed unexpectedly to read data into memory: %r; the read is repeated, and the"
                " client waits for it; if this line comes again, report it as a bug of the broker: %s",
                self.whose,
                error,
                "; ".join(map(str, self._read.missing)),
                exc_info=error,
            )
        self._read_again()


class DelayedFetch(WaitingFetch):
    """The fetch of a consumer: watches the partitions that it requests."""

    __slots__ = ("_queue", "_reads_from_s", "_watched")

    def __init__(self, loop: asyncio.AbstractEventLoop, queue: TurnQueue, read: FetchRead, max_wait_s: float) -> None:
        self._queue = queue
        self._reads_from_s = 0.0
        super().__init__(loop, read, max_wait_s)
        upper_offset, moved = read.upper_offset, self.moved
        self._watched = [WatchedPartition(partition, upper_offset, moved) for partition in read.partitions()]

    def _wait_on(self) -> None:
        rest = rest_s(len(self._watched))
        if rest:
            self._reads_from_s = self._loop.time() + rest

    def _read_soon(self) -> None:
        if self._reads_from_s:
            self._loop.call_at(self._reads_from_s, self._queue.add, self._read_again)
        else:
            self._queue.add(self._read_again)

    def _let_go(self) -> None:
        for watched in self._watched:
            watched.unwatch()
        self._watched.clear()
