"""Syncs truncated logs, one after the other, before any record is appended after the truncation.

The records that a follower truncates were synced, mostly. If the power fails before the truncation is synced, they are
back, whole and valid, in the place of the records that were appended since, and the two cannot be distinguished.
(Apache Kafka does not sync here.)
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
"""Truncated logs that are synced before the callbacks of all of them are called."""

_log = logging.getLogger(__name__)


class TruncatedLogs:
    """Each log is synced once, however often `sync` is called for it meanwhile."""

    def __init__(self, flush: Callable[[Log], Awaitable[None]], withdraw: Callable[[], Awaitable[None]]) -> None:
        """`flush` syncs a log, or raises KafkaError. `withdraw` writes recovery points that a truncation lowered to the
        checkpoint: records that are appended after a truncation are not synced."""
        self._flush = flush
        self._withdraw = withdraw
        self._queue: dict[Log, list[Callable[[Log], None]]] = {}
        self._task: asyncio.Task[None] | None = None

    def sync(self, log: Log, done: Callable[[Log], None]) -> None:
        """Sync a log, and call `done` when it is synced, or cannot be."""
        waiting = self._queue.setdefault(log, [])
        if done not in waiting:
            waiting.append(done)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="flush truncated logs")

    async def close(self) -> None:
        """Wait for the log that is being synced. The others are synced when they are closed."""
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
                    if log in failed or log.offline or not log.flusher.is_truncated:  # else it was truncated once more
                        for done in self._queue.pop(log, ()):
                            done(log)
        finally:
            self._task = None

    async def _sync(self, log: Log) -> bool:
        """Return whether the log could be synced."""
        try:
            await self._flush(log)
        except KafkaError as error:
            # The disk failed, which the disk watch detects; or it is full, and the log is written again later.
            _log.warning(
                "%s-%d was truncated, and the truncation could not be flushed: %s", log.topic, log.partition, error
            )
            return False
        return True
