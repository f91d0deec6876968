"""Isolation: ZooKeeper has not answered this broker for longer than its session lasts.

Either no broker reaches ZooKeeper: then no other leaders can be elected, and the broker continues to serve. Or this
broker is cut off: the cluster considers it dead, other brokers lead its partitions, and records that it appends with
acks=1 would be lost. The metadata of the first other broker that answers decides which of the two it is: a broker that
is missing in it stops leading at once. That broker may be cut off as well: then its metadata is old and still has this
one, which continues to lead, and what it appends with acks=1 is lost.

From the moment at which the connection to ZooKeeper is lost until another broker answers that it knows this one, other
brokers may lead and this one cannot know it: the session ends, at the earliest, a third of its timeout later. Meanwhile
the group coordinator returns no committed offsets, which a newer coordinator may have replaced: a client with
transactions that begins at old offsets would process records twice. The transaction coordinator confirms no end. An
answer from old metadata ends this too early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gregor.broker.log import logger
from gregor.protocol.channel_security import PLAINTEXT_CHANNEL, ChannelSecurity
from gregor.protocol.messages import MetadataRequest
from gregor.protocol.turns import Gate
from gregor.replication.channels.peer import Peer, PeerError

if TYPE_CHECKING:
    from gregor.protocol.topic_partition import TopicPartitionKey
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.partition.replica_manager import ReplicaManager

_POLL_EVERY_S = 1.0
ANSWER_TIMEOUT_MS = 2000
METADATA_VERSION = 9


async def live_brokers(host: str, port: int, gate: Gate, security: ChannelSecurity = PLAINTEXT_CHANNEL) -> set[int]:
    """Return the brokers that the one at this address considers alive. Raises PeerError."""
    peer = Peer(host, port, "isolation", ANSWER_TIMEOUT_MS, gate, security=security)
    try:
        answer = await peer.send(MetadataRequest(topics=[], allow_auto_topic_creation=False), newest=METADATA_VERSION)
        return {broker.node_id for broker in answer.brokers}
    finally:
        peer.close()


class Isolation:
    """Watches one broker. `silent_s()`: how long ZooKeeper has not answered; `listener` and `security`: those of
    connections between brokers."""

    def __init__(
        self,
        replicas: ReplicaManager,
        image: MetadataImage,
        gate: Gate,
        *,
        silent_s: Callable[[], float],
        session_timeout_ms: int,
        listener: str,
        security: ChannelSecurity = PLAINTEXT_CHANNEL,
    ) -> None:
        self._replicas = replicas
        self._image = image
        self._gate = gate
        self._silent_s = silent_s
        self._session_timeout_s = session_timeout_ms / 1000
        self._listener = listener
        self._security = security
        self._fenced = False
        self._was_silent = False

    @property
    def is_fenced(self) -> bool:
        """Whether the cluster considers this broker dead, by the last check, and ZooKeeper still does not answer."""
        return self._fenced and self._silent_s() > self._session_timeout_s

    async def watch(self) -> None:
        """Check every second."""
        while True:
            await asyncio.sleep(_POLL_EVERY_S)
            await self.check()

    async def check(self) -> None:
        """Stop leading if the cluster considers this broker dead; note whether it may do so."""
        if not self._silent_s():
            self._fenced = self._was_silent = False
            self._replicas.suspect_other_leaders(False)
            return
        if self._silent_s() <= self._session_timeout_s:
            self._fenced = False
        elif self._fenced and not self._leading():
            return
        if not self._was_silent:
            self._was_silent = True
            self._replicas.suspect_other_leaders(any(self._others()))
        is_dead = await self._is_considered_dead()
        # The answer may have come late. If ZooKeeper answers again, it reports the end of the session by itself.
        self._fenced = is_dead and self._silent_s() > self._session_timeout_s
        if not self._fenced:
            return
        leading = self._leading()
        logger.warning(
            "fenced: the cluster considers this broker dead, as ZooKeeper has not answered it for %.0f s; it stops"
            " leading %d partitions until it has a new session",
            self._silent_s(),
            len(leading),
        )
        # The first partitions resign at once, before any other work has a turn.
        rest = self._gate.start(self._replicas.resign(leading))
        if rest is not None:
            await rest

    def _leading(self) -> list[TopicPartitionKey]:
        return [key for key, partition in self._replicas.partitions.items() if partition.is_leader]

    async def _is_considered_dead(self) -> bool:
        """By the metadata of the first broker that answers and knows live brokers."""
        for host, port in list(self._others()):
            try:
                alive = await live_brokers(host, port, self._gate, self._security)
            except PeerError:
                continue
            if alive:
                is_dead = self._replicas.broker_id not in alive
                self._replicas.suspect_other_leaders(is_dead and bool(self._silent_s()))
                return is_dead
        self._replicas.suspect_other_leaders(any(self._others()) and bool(self._silent_s()))
        return False

    def _others(self) -> Iterator[tuple[str, int]]:
        for broker_id, broker in self._image.brokers.items():
            endpoint = broker.endpoints.get(self._listener)
            if broker_id != self._replicas.broker_id and endpoint is not None:
                yield endpoint.host, endpoint.port
