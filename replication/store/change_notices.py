"""A folder of numbered notices, by which every broker learns that a node has changed (Kafka's
ZkNodeChangeNotificationListener).

A program writes the node, then a notice about it. Each broker watches the folder and reads the notices that it has not
read yet. Any broker deletes notices that are older than all others need.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from gregor.replication.store.metadata_store import (
    BadVersion,
    Create,
    MetadataStore,
    NodeExists,
    NoNode,
    Operation,
    WatchEvent,
    parent_of,
)

# Notices are kept for brokers that are slow to read them (Kafka: 15 minutes).
CHANGE_KEPT_MS = 15 * 60 * 1000


async def changed_with_notice(store: MetadataStore, write: Operation, notice: Create) -> bool:
    """Change a node and write the notice about it. False if that must be tried again, from the present content of the
    node: another process has altered it in the meantime, or a parent was missing, which exists now."""
    try:
        await store.multi([write, notice])
    except (BadVersion, NodeExists):
        return False
    except NoNode:  # the node was removed in the meantime, or a parent never made or removed by hand
        for path in (write.path, notice.path):
            with suppress(NodeExists):
                await store.create(parent_of(path), make_parents=True)
        return False
    return True


class ChangeNotices:
    """`on_notices` is awaited with the data of new notices, in their order; `spawn` runs a coroutine on the loop."""

    def __init__(
        self,
        store: MetadataStore,
        folder: str,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        clock_ms: Callable[[], int],
        on_notices: Callable[[list[bytes]], Awaitable[None]],
    ) -> None:
        self._store = store
        self._folder = folder
        self._spawn = spawn
        self._clock_ms = clock_ms
        self._on_notices = on_notices
        # Notices already handled, by node name, with the time when they were first read.
        self._seen: dict[str, int] = {}
        self._watched = False

    async def start(self) -> None:
        """Watch the folder; the present notices count as read. The nodes are read after this: one that changes from
        here on is read again. After an expired session this starts anew."""
        names = await self._names()
        now_ms = self._clock_ms()
        self._seen = {name: self._seen.get(name, now_ms) for name in names}

    def lose_watch(self) -> None:
        """Note that the session has expired, and with it the watch."""
        self._watched = False

    async def _names(self) -> list[str]:
        """Return the names of the notices, and watch them unless they are: each of two watches would set another
        two."""
        watch, self._watched = (None if self._watched else self._changed), True
        try:
            while True:
                try:
                    return await self._store.children(self._folder, watch)
                except NoNode:  # removed by hand: there would be nothing to watch
                    with suppress(NodeExists):
                        await self._store.create(self._folder, make_parents=True)
        except BaseException:
            self._watched = self._watched and watch is None
            raise

    def _changed(self, _event: WatchEvent) -> None:
        self._watched = False
        self._spawn(self._read())

    async def _read(self) -> None:
        names = sorted(await self._names())
        now_ms = self._clock_ms()
        news = [name for name in names if name not in self._seen]
        old = [name for name in names if now_ms - self._seen.get(name, now_ms) > CHANGE_KEPT_MS]
        seen = {name: self._seen.get(name, now_ms) for name in names}
        found = await self._store.get_many([f"{self._folder}/{name}" for name in news])
        await self._on_notices([node[0] for node in found if node is not None])
        self._seen = seen  # not before: what the store could not deliver now is read with the next notice
        for name in old:
            # Another broker may have deleted it.
            try:
                await self._store.delete(f"{self._folder}/{name}")
            except NoNode:
                continue
