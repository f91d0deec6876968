"""Updates of the finalised features, as requests of clients: one at a time, and a repeated one joins the running one.

An update runs on its own, whatever becomes of the connection that requested it: a downgrade that has begun ends, or is
undone at its time limit. A client that repeats it waits for the same end, and extends the limit to its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.admin.features import FeatureAdmin, FeatureUpdate
from gregor.replication.store.time_limit import TimeLimit


class _Running(NamedTuple):
    updates: frozenset[FeatureUpdate]
    limit: TimeLimit
    ended: asyncio.Future[KafkaError | None]


class FeatureUpdates:
    """The seam of UpdateFeatures. `spawn` runs a coroutine on the loop, to its end or that of the broker."""

    def __init__(self, admin: FeatureAdmin, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._admin = admin
        self._spawn = spawn
        self._running: _Running | None = None

    async def update(self, updates: Sequence[FeatureUpdate], timeout_ms: int, *, validate_only: bool = False) -> None:
        """Return when the new levels are in force on this broker. Raises KafkaError, as FeatureAdmin.update."""
        limit = TimeLimit(timeout_ms)
        if validate_only:
            await self._admin.validate(updates, limit)
            return
        wanted = frozenset(updates)
        while (running := self._running) is not None and (running.updates != wanted or len(wanted) < len(updates)):
            await _wait(running, limit)
        if running is None:
            ended = asyncio.get_running_loop().create_future()
            running = self._running = _Running(wanted, limit, ended)
            self._spawn(self._run(updates, running))
            error = await asyncio.shield(ended)
        else:
            running.limit.extend(limit)
            error = await asyncio.shield(running.ended)
        if error is not None:
            raise KafkaError(error.code, error.message)

    async def _run(self, updates: Sequence[FeatureUpdate], running: _Running) -> None:
        error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the update has ended with the broker")
        try:
            await self._admin.update(updates, running.limit)
        except KafkaError as failure:
            running.ended.set_result(failure)
        else:
            running.ended.set_result(None)
        finally:
            self._running = None
            if not running.ended.done():
                running.ended.set_result(error)


async def _wait(running: _Running, limit: TimeLimit) -> None:
    """Wait for the end of another update. Raises KafkaError REQUEST_TIMED_OUT."""
    await asyncio.wait([running.ended], timeout=max(0, limit.left_ms) / 1000)
    if not running.ended.done():
        names = ", ".join(sorted(update.name for update in running.updates))
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, f"another update of features ({names}) has not ended yet: try again later"
        )
