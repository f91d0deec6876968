"""The time limit of a request that waits for the metadata store while ZooKeeper is suspended or out of reach.

The controller itself waits for the store without a limit. A request has a client that waits: it is answered in time,
and its writes are given up, so that nothing is done much later that the client no longer expects. Apache Kafka lets its
threads wait instead, until the clients time out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.store.metadata_store import SessionExpired

DEFAULT_TIMEOUT_MS = 30_000
MIN_MS, MAX_MS = 5_000, 30_000
"""Limits of the time for each write, whatever the timeout of the request. The first, because a request that does not
wait (timeout 0, librdkafka's default) is carried out all the same, as by Apache Kafka, and so is one about thousands of
topics. The second, because by then the session has usually expired, and with it this broker's term."""

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class TimeLimit:
    """The limit of one request; it begins when the object is made, on a running loop. Requests without a timeout have
    the default."""

    __slots__ = ("_given_up", "_loop", "_until_s")

    def __init__(self, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        self._loop = asyncio.get_running_loop()
        self._until_s = self._loop.time() + timeout_ms / 1000
        self._given_up = False

    @property
    def left_ms(self) -> int:
        """Return the remaining time; at 0 or less the request waits for nothing more."""
        return round((self._until_s - self._loop.time()) * 1000)

    def extend(self, other: TimeLimit) -> None:
        """Wait as long as another request does, too, which waits for the same."""
        self._until_s = max(self._until_s, other._until_s)

    async def within(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Return the result of `work`, which is started again if the session ends before it is done. If it does not end
        in time, it is cancelled, and no other part of the request is started. Raises KafkaError REQUEST_TIMED_OUT: its
        last write may have been done or not."""
        now_s = self._loop.time()
        until_s = min(max(self._until_s, now_s + MIN_MS / 1000), now_s + MAX_MS / 1000)
        while not self._given_up:
            try:
                async with asyncio.timeout_at(until_s):
                    return await work()
            except SessionExpired:
                continue
            except TimeoutError:
                self._given_up = True
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the metadata of the cluster cannot be reached now")

    async def within_each(
        self, items: Iterable[ItemT], work: Callable[[ItemT], Awaitable[ResultT]]
    ) -> list[ResultT | KafkaError]:
        """Return for each item the result of its work, see `within`, or the KafkaError that it raised. The work of all
        begins at once, in their order, so that the store commits their writes together.

        Raises the first other error, when all work has ended."""

        async def one(item: ItemT) -> ResultT | KafkaError:
            try:
                return await self.within(partial(work, item))
            except KafkaError as error:
                return error

        results = []
        for result in await asyncio.gather(*map(one, items), return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, KafkaError):
                raise result
            results.append(result)
        return results
