"""The channel to the active controller, whichever broker that is: a call to the one of this process, else the network.
Which broker it is, the metadata image says: the one that sent this broker its metadata last.

Requests that wait for a controller which is just moving are repeated by `retried`. Controlled shutdown and
AlterPartition repeat theirs on their own: settings say how often, and newer metadata makes a proposal void.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gregor.protocol.messages import request_class
from gregor.protocol.turns import Gate
from gregor.replication.channels.peer import Peer, PeerError

if TYPE_CHECKING:
    from gregor.protocol.messages import ApiMessage

RETRY_DELAY_S = 0.05
RETRIED_FOR_S = 5.0

ResultT = TypeVar("ResultT")


async def retried(attempt: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """The result of the first attempt that raises no PeerError. Raises the PeerError of the first one that ends after
    RETRIED_FOR_S; an attempt that is under way then is not cut short."""
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
    """One connection, for one request at a time. Each request, and each attempt to connect, has the time of
    controller.socket.timeout.ms."""

    def __init__(
        self,
        broker_id: int,
        image: KnownController,
        own: OwnController | None,
        listener: str,
        timeout_ms: int,
        gate: Gate,
        client_id: str | None = None,
    ) -> None:
        """`own` answers while this broker is the controller; without it, requests go to other brokers only. `listener`:
        name of the one that brokers connect to."""
        self._broker_id = broker_id
        self._image = image
        self._own = own
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._gate = gate
        self._client_id = client_id or f"broker-{broker_id}"
        self._peer: Peer | None = None
        image.on_update.append(self._close_if_replaced)

    def _close_if_replaced(self) -> None:
        """A response of a controller that was replaced may never come: it may be suspended, or cut off from all but the
        connections that it has."""
        if self._peer is not None and self._peer.address != self._address():
            self.close()

    async def offered(self, api_key: int) -> tuple[int, int] | None:
        """The oldest and the newest version in which the controller answers this, None if in none. Raises PeerError."""
        if self._own is not None and self._own.is_active:
            kind = request_class(api_key)
            return None if kind is None else (kind.MIN_VERSION, kind.MAX_VERSION)
        return await self._connection().offered(api_key)

    async def ask(self, request: ApiMessage, max_version: int | None = None) -> Any:
        """The answer, in the newest version that both know, up to `max_version`. Raises PeerError: no controller is
        known or can be reached now."""
        if self._own is not None and self._own.is_active:
            return await self._own.answer(request, request.MAX_VERSION if max_version is None else max_version)
        return await self._connection().ask(request, newest=max_version)

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
            self._peer = Peer(*address, self._client_id, self._timeout_ms, self._gate)
        return self._peer

    def _address(self) -> tuple[str, int] | None:
        """Where another broker that is the controller is reached."""
        controller_id = self._image.controller_id
        broker = self._image.brokers.get(controller_id)
        endpoint = None if broker is None else broker.endpoints.get(self._listener)
        if controller_id == self._broker_id or endpoint is None:
            return None
        return endpoint.host, endpoint.port
