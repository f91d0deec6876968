"""How long a request waits for the metadata store, which may be away: ZooKeeper suspended, or out of reach.

The controller itself waits for it as long as that takes. A request has a client that waits: it is answered in its time,
and what it wanted to write is given up, so that nothing is done much later that nobody reckons with any more. Apache
Kafka lets its threads wait instead, and the clients run into their own time-outs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.store.metadata_store import SessionExpired

DEFAULT_TIMEOUT_MS = 30_000
MIN_MS, MAX_MS = 5_000, 30_000
"""Each thing to be written has at least so long, whatever the request says: one that does not wait (time-out 0, which
is librdkafka's default) is done all the same, as by Apache Kafka, and so is one about thousands of topics. And it has
no longer than the second: by then the session is mostly over, and with it this broker's term."""

ResultT = TypeVar("ResultT")


class TimeLimit:
    """That of one request; it begins when this is made, on a running loop. Requests that name none have the default."""

    __slots__ = ("_given_up", "_loop", "_until_s")

    def __init__(self, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        self._loop = asyncio.get_running_loop()
        self._until_s = self._loop.time() + timeout_ms / 1000
        self._given_up = False

    @property
    def left_ms(self) -> int:
        """What is left of it; 0 or less: nothing is waited for any more."""
        return round((self._until_s - self._loop.time()) * 1000)

    async def within(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """The result of `work`, which is begun again where the session ended before it was done. If it does not end in
        time, it is given up, and whatever the request is about besides is not begun. Raises KafkaError
        REQUEST_TIMED_OUT: nobody knows whether what it was about to write is written."""
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
