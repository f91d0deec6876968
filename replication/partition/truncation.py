"""Logs that were cut back, brought to the disk one after the other before anything is written behind the cut.

What a follower cuts off was synced, mostly. If the power fails before it is synced that it was cut off, it is there
again, whole and valid, instead of what was written in its place, and nothing tells the two apart. (Apache Kafka does
not sync here.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import TYPE_CHECKING

from gregor.protocol.errors import KafkaError

if TYPE_CHECKING:
    from gregor.storage.log.log import Log

MAX_AT_ONCE = 50
"""Cut logs that are synced before all of them are told of."""

_log = logging.getLogger(__name__)


class TruncatedLogs:
    """Each log is brought to the disk once, however often it is asked for meanwhile."""

    def __init__(self, flush: Callable[[Log], Awaitable[None]], withdraw: Callable[[], Awaitable[None]]) -> None:
        """`flush` brings a log to the disk, or raises KafkaError. `withdraw` writes recovery points that fell to where
        they are kept: what comes behind a cut is not synced."""
        self._flush = flush
        self._withdraw = withdraw
        self._queue: dict[Log, list[Callable[[Log], None]]] = {}
        self._task: asyncio.Task[None] | None = None

    def sync(self, log: Log, done: Callable[[Log], None]) -> None:
        """`done` is called when the log is synced, or cannot be."""
        waiting = self._queue.setdefault(log, [])
        if done not in waiting:
            waiting.append(done)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="flush truncated logs")

    async def close(self) -> None:
        """Waits for the one that is under way. The others are synced when they are closed."""
        self._queue.clear()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        try:
            while self._queue:
                batch = list(islice(self._queue, MAX_AT_ONCE))
                failed = []
                for log in batch:
                    if log in self._queue and not await self._sync(log):
                        failed.append(log)
                await self._withdraw()
                for log in batch:
                    if log in failed or log.offline or not log.is_truncated:  # else it was cut once more
                        for done in self._queue.pop(log, ()):
                            done(log)
        finally:
            self._task = None

    async def _sync(self, log: Log) -> bool:
        """False if that cannot be done."""
        try:
            await self._flush(log)
        except KafkaError as error:
            # The disk failed, which its own watch sees; or is full, and the log is written again later.
            _log.warning(
                "%s-%d was truncated, and the truncation could not be flushed: %s", log.topic, log.partition, error
            )
            return False
        return True
