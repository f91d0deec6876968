"""The channel to the active controller: a call where it runs in this process, else a connection over the network.

The metadata image names the broker that is the controller: the one that sent this broker its metadata last.

`retried` repeats requests while the controller moves to another broker. Controlled shutdown and AlterPartition repeat
theirs on their own: settings limit the attempts of the one, and newer metadata makes a proposal of the other void.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gregor.protocol.channel_security import PLAINTEXT_CHANNEL, ChannelSecurity
from gregor.protocol.messages import request_class
from gregor.protocol.turns import Gate
from gregor.replication.channels.peer import Peer, PeerError

if TYPE_CHECKING:
    from gregor.protocol.messages import ApiMessage

RETRY_DELAY_S = 0.05
RETRIED_FOR_S = 5.0

ResultT = TypeVar("ResultT")


async def retried(attempt: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Return the result of the first attempt that raises no PeerError.

    Raises the PeerError of the first attempt that ends after RETRIED_FOR_S; an attempt is not interrupted by then.
    """
    until_s = time.monotonic() + RETRIED_FOR_S
    while True:
        try:
            return await attempt()
        except PeerError:
            if time.monotonic() > until_s:
                raise
        await asyncio.sleep(RETRY_DELAY_S)


class OwnController(Protocol):
    """The controller of this process."""

    @property
    def is_active(self) -> bool: ...

    async def answer(self, request: Any, version: int) -> Any: ...


class Endpoint(Protocol):
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class ReachableBroker(Protocol):
    @property
    def endpoints(self) -> Mapping[str, Endpoint]: ...


class KnownController(Protocol):
    """The part of the metadata image that names the controller, and the addresses of brokers by listener."""

    @property
    def controller_id(self) -> int: ...
    @property
    def brokers(self) -> Mapping[int, ReachableBroker]: ...
    @property
    def on_update(self) -> list[Callable[[], None]]: ...


class ControllerChannel:
    """One connection, for one request at a time. controller.socket.timeout.ms limits each request and each attempt to
    connect."""

    def __init__(
        self,
        broker_id: int,
        image: KnownController,
        own: OwnController | None,
        listener: str,
        timeout_ms: int,
        gate: Gate,
        client_id: str | None = None,
        security: ChannelSecurity = PLAINTEXT_CHANNEL,
    ) -> None:
        """`own` handles requests while this broker is the controller; without it, requests go to other brokers only.
        `listener` is the name of the inter-broker listener, `security` that of its connections."""
        self._broker_id = broker_id
        self._image = image
        self._own = own
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._gate = gate
        self._security = security
        self._client_id = client_id or f"broker-{broker_id}"
        self._peer: Peer | None = None
        image.on_update.append(self._close_if_replaced)

    def _close_if_replaced(self) -> None:
        """Close a connection to a controller that was replaced: it may never respond, as its process may be suspended,
        or partitioned from the network except for open connections."""
        if self._peer is not None and self._peer.address != self._address():
            self.close()

    async def offered(self, api_key: int) -> tuple[int, int] | None:
        """Return the oldest and newest version of an API that the controller supports, or None. Raises PeerError."""
        if self._own is not None and self._own.is_active:
            kind = request_class(api_key)
            return None if kind is None else (kind.MIN_VERSION, kind.MAX_VERSION)
        return await self._connection().offered(api_key)

    async def send(self, request: ApiMessage, max_version: int | None = None) -> Any:
        """Return the response to a request, sent in the newest version that both sides know, up to `max_version`.

        Raises PeerError where no controller is known or can be reached now.
        """
        if self._own is not None and self._own.is_active:
            return await self._own.answer(request, request.MAX_VERSION if max_version is None else max_version)
        return await self._connection().send(request, newest=max_version)

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    def _connection(self) -> Peer:
        address = self._address()
        if address is None:
            self.close()
            raise PeerError("it is not known which broker is the controller")
        if self._peer is None or self._peer.address != address:
            self.close()
            self._peer = Peer(*address, self._client_id, self._timeout_ms, self._gate, security=self._security)
        return self._peer

    def _address(self) -> tuple[str, int] | None:
        """Return host and port of the controller, None where it is this broker or not known."""
        controller_id = self._image.controller_id
        broker = self._image.brokers.get(controller_id)
        endpoint = None if broker is None else broker.endpoints.get(self._listener)
        if controller_id == self._broker_id or endpoint is None:
            return None
        return endpoint.host, endpoint.port
