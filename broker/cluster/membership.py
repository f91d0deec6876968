"""A broker's membership in the cluster of a ZooKeeper: its registration, until the broker stops.

The registration lasts as long as the session. That of a broker that was killed is closed by its session watcher, or by
its next process (gregor.broker.session_watcher); where neither could close it, a broker that starts again waits until
it ends. A broker whose session ended while it ran (it was suspended, or cut off) is dead for the cluster, which has
elected other leaders: it stops leading at once and registers again with another broker epoch, upon which the controller
sends it the partitions that it leads, and all topics; those that were deleted meanwhile leave its metadata.
gregor.broker.cluster.isolation handles the time in which ZooKeeper does not answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from gregor.broker.log import logger
from gregor.replication.store.metadata_store import SessionExpired, StoreError
from gregor.replication.store.nodes import TOPICS, broker_path
from gregor.replication.store.registration import BrokerIdInUse, register

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.replication.partition.controller_request_handler import ControllerRequestHandler
    from gregor.replication.partition.metadata_image import MetadataImage, TopicState
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.replication.store.metadata_store import MetadataStore, WatchEvent
    from gregor.replication.store.nodes import BrokerRegistration

FREED_WITHIN_SHARE = 1.5
FREED_WITHIN_MORE_MS = 5000
"""ZooKeeper ends a session some ticks after its timeout, and later under load."""
_COUNTDOWN_EVERY_S = 2.0
_TRY_AGAIN_S = 1.0
INFORMED_WITHIN_S = 10.0
_POLL_EVERY_S = 0.02


async def register_when_free(store: MetadataStore, broker: BrokerRegistration, session_timeout_ms: int) -> int:
    """Register; where the broker id belongs to a session, which may be this broker's own from before a crash, wait
    until ZooKeeper ends that session. Raises BrokerIdInUse if it outlasts any session of a dead broker: its broker
    lives."""
    path = broker_path(broker.broker_id)
    patience_s = (session_timeout_ms * FREED_WITHIN_SHARE + FREED_WITHIN_MORE_MS) / 1000
    until = time.monotonic() + patience_s
    while True:
        try:
            return await register(store, broker)
        except BrokerIdInUse:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise BrokerIdInUse(
                    path,
                    f"another live broker is registered as broker.id={broker.broker_id}, and has been for"
                    f" {patience_s:.0f} s, longer than a session outlasts its broker; give this one another broker.id,"
                    f" or stop the other",
                ) from None
        logger.warning(
            "broker.id=%d is still registered, by this broker's session from before its last end or by another broker;"
            " waiting for ZooKeeper to end that session, %.0f s at most",
            broker.broker_id,
            left_s,
        )
        await _until_freed(store, path, min(left_s, _COUNTDOWN_EVERY_S))


async def _until_freed(store: MetadataStore, path: str, timeout_s: float) -> None:
    freed = asyncio.Event()

    def changed(_event: WatchEvent) -> None:
        freed.set()

    if await store.exists(path, changed) is None:
        return
    try:
        async with asyncio.timeout(timeout_s):
            await freed.wait()
    except TimeoutError:
        return


async def until_informed(image: MetadataImage, timeout_s: float = INFORMED_WITHIN_S) -> bool:
    """Wait for the controller's first UpdateMetadata, which holds all metadata. False if it did not come in time."""
    until = time.monotonic() + timeout_s
    while not image.is_informed:
        if time.monotonic() > until:
            image.expect_topics(False)
            return False
        await asyncio.sleep(_POLL_EVERY_S)
    return True


class Membership:
    """Keeps one broker registered. `registration()` returns its present registration, `end(reason)` stops the
    broker."""

    def __init__(
        self,
        store: MetadataStore,
        local: ControllerRequestHandler,
        replicas: ReplicaManager,
        image: MetadataImage,
        background: Background,
        *,
        registration: Callable[[], BrokerRegistration],
        session_timeout_ms: int,
        end: Callable[[str], None],
    ) -> None:
        self._store = store
        self._local = local
        self._replicas = replicas
        self._image = image
        self._background = background
        self._registration = registration
        self._session_timeout_ms = session_timeout_ms
        self._end = end
        self._registering = asyncio.Lock()
        self._ended_sessions = 0

    async def join(self) -> None:
        """Register, now and after each session's end. Raises StoreError."""
        await self._register()
        self._store.on_session_expired.append(self._session_expired)

    async def renew(self) -> None:
        """Register again, with another registration."""
        await self._register()

    async def _register(self) -> None:
        async with self._registering:
            ended_sessions = self._ended_sessions
            epoch = await register_when_free(self._store, self._registration(), self._session_timeout_ms)
            if ended_sessions == self._ended_sessions:
                self._local.registered(epoch)
            # Else this registration may have ended with its session; `_register_again` of that session follows.

    def _session_expired(self) -> None:
        self._ended_sessions += 1
        self._local.session_ended()
        leading = [key for key, partition in self._replicas.partitions.items() if partition.is_leader]
        logger.warning(
            "the ZooKeeper session has ended: this broker stops leading %d partitions and registers again", len(leading)
        )
        # All at once; of thousands as many as one turn of the loop allows.
        resigning = self._background.gate.start(self._replicas.resign(leading))
        self._background.spawn(self._register_again(resigning))

    async def _register_again(self, resigning: Awaitable[None] | None) -> None:
        if resigning is not None:
            await resigning
        while True:
            try:
                known = list(self._image.topics())
                await self._register()
                logger.info("registered again, with epoch %d", self._local.broker_epoch)
                break
            except BrokerIdInUse as error:
                self._end(str(error))
                return
            except SessionExpired:
                return  # on_session_expired is called for that session, too
            except StoreError as error:
                logger.warning("broker.id cannot be registered: %s; the broker tries again", error)
                await asyncio.sleep(_TRY_AGAIN_S)
        await self._remove_deleted(known)

    async def _remove_deleted(self, known: list[TopicState]) -> None:
        """Remove the topics from the metadata that were `known` before the registration, and are deleted.

        The controller reports the deletions that are complete once it knows of the registration to the brokers of that
        time alone. Later ones it reports to this broker, so that the nodes are read after its first update.
        """
        updated = asyncio.Event()
        self._image.on_update.append(updated.set)
        try:
            await updated.wait()
        finally:
            self._image.on_update.remove(updated.set)
        with suppress(SessionExpired):  # this follows the next registration, too
            names = frozenset(await self._store.children(TOPICS))
            self._image.remove([topic for topic in known if topic.name not in names])
