"""What a broker does when it hears nothing from ZooKeeper for longer than its session lasts.

Either ZooKeeper is away for all: no other leaders can be elected, and the broker goes on serving. Or this broker alone
is cut off: the others take it for dead and lead its partitions, and what it took with acks=1 would be lost. The others
know which it is, so they are asked; a broker that is in no metadata any more stops leading at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gregor.broker.log import logger
from gregor.protocol.messages import MetadataRequest
from gregor.protocol.turns import Gate
from gregor.replication.channels.peer import Peer, PeerError

if TYPE_CHECKING:
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.partition.replica_manager import ReplicaManager

_POLL_EVERY_S = 1.0
ANSWER_TIMEOUT_MS = 2000
METADATA_VERSION = 9


async def live_brokers(host: str, port: int, gate: Gate) -> set[int]:
    """The brokers that one of them takes for alive. Raises PeerError."""
    peer = Peer(host, port, "silence", ANSWER_TIMEOUT_MS, gate)
    try:
        answer = await peer.send(MetadataRequest(topics=[], allow_auto_topic_creation=False), newest=METADATA_VERSION)
        return {broker.node_id for broker in answer.brokers}
    finally:
        peer.close()


class Isolation:
    """One broker's. `silent_s()`: how long it has had no ZooKeeper; `listener`: the one that brokers talk on."""

    def __init__(
        self,
        replicas: ReplicaManager,
        image: MetadataImage,
        gate: Gate,
        *,
        silent_s: Callable[[], float],
        session_timeout_ms: int,
        listener: str,
    ) -> None:
        self._replicas = replicas
        self._image = image
        self._gate = gate
        self._silent_s = silent_s
        self._session_timeout_s = session_timeout_ms / 1000
        self._listener = listener

    async def watch(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(_POLL_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Stop leading, if this broker counts as dead."""
        if self._silent_s() <= self._session_timeout_s:
            return
        leading = [key for key, partition in self._replicas.partitions.items() if partition.is_leader]
        if not leading or not await self._counts_as_dead():
            return
        logger.warning(
            "fenced: the cluster considers this broker dead, as ZooKeeper has not answered it for %.0f s; it stops"
            " leading %d partitions until it has a new session",
            self._silent_s(),
            len(leading),
        )
        # The first partitions at once, before anything else has a turn.
        rest = self._gate.start(self._replicas.resign(leading))
        if rest is not None:
            await rest

    async def _counts_as_dead(self) -> bool:
        """By the word of the first that answers and knows anybody."""
        for host, port in list(self._others()):
            try:
                alive = await live_brokers(host, port, self._gate)
            except PeerError:
                continue
            # Asking may take long, and the connection may be there again: then the session's end is told by itself.
            if alive and self._silent_s() > self._session_timeout_s:
                return self._replicas.broker_id not in alive
        return False

    def _others(self) -> Iterator[tuple[str, int]]:
        for broker_id, broker in self._image.brokers.items():
            endpoint = broker.endpoints.get(self._listener)
            if broker_id != self._replicas.broker_id and endpoint is not None:
                yield endpoint.host, endpoint.port
