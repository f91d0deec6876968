"""Requests to the leaders of partitions that a scrape waits for, but never for long."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from gregor.broker.cluster.peer_queue import Exchange, PeerQueues

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.config.broker import BrokerConfig
    from gregor.protocol.channel_security import ChannelSecurity
    from gregor.replication.channels.peer import Peer, PeerError
    from gregor.replication.partition.metadata_image import MetadataImage

ItemT = TypeVar("ItemT", bound=Hashable)


class LeaderRequests(Generic[ItemT]):
    """`add(...)`, then `await wait(...)`. A request that is under way is not repeated. Lives on the event loop."""

    def __init__(
        self,
        config: BrokerConfig,
        image: MetadataImage,
        background: Background,
        name: str,
        exchange: Exchange[ItemT],
        security: ChannelSecurity,
    ) -> None:
        """`name`: see PeerQueues. `exchange` sends a request about the items and keeps what is answered."""
        self._exchange = exchange
        self._pending: set[ItemT] = set()
        self._answered = asyncio.Event()
        self._queues: PeerQueues[ItemT] = PeerQueues(
            config, image, background, name, self._exchanged, self._failed, security=security
        )

    def add(self, leader: int, item: ItemT) -> None:
        """Send a request about an item to the leader; nothing if its address is not known."""
        if item not in self._pending:
            self._pending.add(item)
            if not self._queues.add(leader, item):
                self._pending.discard(item)

    async def wait(self, limit_s: float) -> None:
        """Wait until all requests are answered or have failed, at most this long."""
        if self._pending:
            self._answered.clear()
            try:
                async with asyncio.timeout(limit_s):
                    await self._answered.wait()
            except TimeoutError:
                pass

    def close(self) -> None:
        self._queues.close()

    async def _exchanged(self, peer: Peer, items: list[ItemT]) -> None:
        await self._exchange(peer, items)
        self._end(items)

    def _failed(self, items: list[ItemT], _error: PeerError) -> None:
        self._end(items)

    def _end(self, items: list[ItemT]) -> None:
        self._pending.difference_update(items)
        if not self._pending:
            self._answered.set()
