"""Requests to other brokers about many items: one request to a broker is in flight, and the items that are added
meanwhile are together in the next one.

A broker whose address changes or that leaves the cluster gets no further request, and the one in flight ends: its
process may be suspended, or partitioned from the network except for open connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from gregor.broker.log import logger
from gregor.protocol.channel_security import PLAINTEXT_CHANNEL, ChannelSecurity
from gregor.replication.channels.peer import Peer, PeerError

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.config.broker import BrokerConfig
    from gregor.replication.partition.metadata_image import MetadataImage

MAX_ITEMS = 200
"""In one request: to encode more would keep other work from the loop for too long."""

ItemT = TypeVar("ItemT")
Exchange = Callable[[Peer, list[ItemT]], Awaitable[None]]
"""Sends a request about the items and handles its response. Raises PeerError."""
Failed = Callable[[list[ItemT], PeerError], None]


class _Queue(Generic[ItemT]):
    """The items for one broker at one address."""

    def __init__(self, peer: Peer, exchange: Exchange[ItemT], failed: Failed[ItemT]) -> None:
        self.peer = peer
        self._exchange = exchange
        self._failed = failed
        self._items: deque[ItemT] = deque()
        self._closed = False
        self._running = False

    def add(self, item: ItemT) -> bool:
        """Add an item; return whether `run` must be started."""
        self._items.append(item)
        starts, self._running = not self._running, True
        return starts

    async def run(self) -> None:
        """Send the items until none are left."""
        try:
            while self._items:
                items = [self._items.popleft() for _ in range(min(MAX_ITEMS, len(self._items)))]
                try:
                    if self._closed:
                        raise PeerError(f"{self.peer}: the broker has left, or has another address")
                    await self._exchange(self.peer, items)
                except PeerError as error:
                    self._failed(items, error)
                except Exception as error:  # a bug: the other items, and those to come, must not be lost with it
                    logger.exception("a request to the broker at %s failed", self.peer)
                    self._failed(items, PeerError(f"{self.peer}: {error}"))
        finally:
            self._running = False

    def close(self) -> None:
        self._closed = True
        self.peer.close()


class PeerQueues(Generic[ItemT]):
    """The queues to all other brokers."""

    def __init__(
        self,
        config: BrokerConfig,
        image: MetadataImage,
        background: Background,
        name: str,
        exchange: Exchange[ItemT],
        failed: Failed[ItemT],
        client_id: str | None = None,
        security: ChannelSecurity = PLAINTEXT_CHANNEL,
    ) -> None:
        """`name` is part of the client id, unless one is given; `failed` is called with items whose request got no
        response."""
        self._image = image
        self._listener = config.inter_broker_listener_name
        self._client_id = client_id or f"broker-{config.broker_id}-{name}"
        self._timeout_ms: int = config["request.timeout.ms"]
        self._background = background
        self._security = security
        self._exchange = exchange
        self._failed = failed
        self._queues: dict[int, _Queue[ItemT]] = {}
        image.on_update.append(self._close_replaced)

    def add(self, broker_id: int, item: ItemT) -> bool:
        """Send an item to a broker; return False if the address of the broker is not known."""
        address = self._address(broker_id)
        if address is None:
            return False
        queue = self._queues.get(broker_id)
        if queue is None:
            gate, security = self._background.gate, self._security
            peer = Peer(*address, self._client_id, self._timeout_ms, gate, security=security)
            queue = self._queues[broker_id] = _Queue(peer, self._exchange, self._failed)
        if queue.add(item):
            self._background.spawn(queue.run())
        return True

    def close(self) -> None:
        """End the requests that are in flight, and close all connections."""
        for queue in self._queues.values():
            queue.close()
        self._queues.clear()

    def _close_replaced(self) -> None:
        for broker_id, queue in list(self._queues.items()):
            if queue.peer.address != self._address(broker_id):
                del self._queues[broker_id]
                queue.close()

    def _address(self, broker_id: int) -> tuple[str, int] | None:
        broker = self._image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoints.get(self._listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)
