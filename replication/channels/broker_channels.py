"""The controller's channel to each broker: a call to the broker of its own process, connections to the others.

A connection lasts as long as the broker's registration. The controller loop decides what is sent when: it repeats a
request until the broker has responded or its registration is gone, as Kafka's RequestSendThread does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from gregor.protocol.channel_security import PLAINTEXT_CHANNEL, ChannelSecurity
from gregor.protocol.turns import Gate
from gregor.replication.channels.peer import Peer, PeerError

if TYPE_CHECKING:
    from gregor.config.listeners import Listener
    from gregor.replication.channels.messages import BrokerRequest, BrokerResponse
    from gregor.replication.store.nodes import BrokerRegistration


class RegisteredBroker(Protocol):
    """A live broker under one registration."""

    @property
    def epoch(self) -> int: ...
    @property
    def registration(self) -> BrokerRegistration: ...


class RequestHandler(Protocol):
    """The broker of this process."""

    async def handle(self, request: BrokerRequest) -> BrokerResponse: ...


class Brokers:
    """The BrokerChannels of a cluster."""

    def __init__(
        self,
        broker_id: int,
        local: RequestHandler,
        live: Callable[[], Mapping[int, RegisteredBroker]],
        listener: str,
        timeout_ms: int,
        gate: Gate,
        security: ChannelSecurity = PLAINTEXT_CHANNEL,
    ) -> None:
        """`live` returns the controller's live brokers by id. `listener` is the name of the inter-broker listener, and
        `security` that of its connections; `timeout_ms` is controller.socket.timeout.ms."""
        self._live = live
        self._broker_id = broker_id
        self._local = local
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._gate = gate
        self._security = security
        self._peers: dict[int, tuple[int, Peer]] = {}  # by broker id: the broker's epoch, and its client

    async def send(self, broker_id: int, request: BrokerRequest) -> BrokerResponse:
        """Return the response. Raises PeerError where there is none, or the broker is not registered any more."""
        if broker_id == self._broker_id:
            return await self._local.handle(request)
        response: BrokerResponse = await self._peer(broker_id, request.broker_epoch).send(request)
        return response

    def close(self, broker_id: int) -> None:
        """Close the connection: the broker is gone, or this one is no longer the controller."""
        known = self._peers.pop(broker_id, None)
        if known is not None:
            known[1].close()

    def _peer(self, broker_id: int, broker_epoch: int) -> Peer:
        broker = self._live().get(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            raise PeerError(f"broker {broker_id} of epoch {broker_epoch} is not registered")
        address = address_of(broker.registration.endpoints, self._listener)
        if address is None:
            raise PeerError(f"broker {broker_id} has no listener {self._listener}, the inter-broker listener")
        known = self._peers.get(broker_id)
        if known is not None and known[0] == broker_epoch and known[1].address == address:
            return known[1]
        self.close(broker_id)
        client_id = f"controller-{self._broker_id}"
        peer = Peer(*address, client_id, self._timeout_ms, self._gate, security=self._security)
        self._peers[broker_id] = broker_epoch, peer
        return peer


def address_of(endpoints: tuple[Listener, ...], listener: str) -> tuple[str, int] | None:
    """Return host and port of the endpoint with this name."""
    for endpoint in endpoints:
        if endpoint.name == listener:
            return endpoint.host, endpoint.port
    return None
