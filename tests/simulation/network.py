"""The network between brokers and clients: connections whose messages are delayed at random, or lost.

A link is a direction between two hosts. While it is cut, messages that are sent over it, or that should arrive, are
lost. Their sender does not learn this: it waits until its own time-out, and its request may have been executed. Bytes
of one connection stay in order; those of an abandoned connection may arrive after those of the next, unless it was
reset while they waited at their sender. gregor's own connection code (gregor.replication.channels.peer) runs on top,
with its buffers.
"""

from __future__ import annotations

import asyncio
import math
import random
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from tests.simulation.loop import Process, VirtualLoop


class ServerEnd(Protocol):
    """One accepted connection."""

    def frame(self, data: bytes) -> Awaitable[bytes | None]:
        """Return the response to a request, sizes included in both, or None if it gets none."""

    def lost(self) -> None:
        """The other side is gone."""


class Network:
    """The listeners, by host, and the links that are cut. Hosts are names; ports mean nothing."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.cut: set[tuple[str, str]] = set()
        self.watcher: Callable[[str, str, bytes], float] | None = None
        """Called with source, target and bytes of each message to a server; returns the seconds by which it is late."""
        self.answer_watcher: Callable[[str, str, bytes], float] | None = None
        """The same of each response, by its request."""
        self.slow: dict[str, float] = {}
        """The longest additional delay of messages from or to a host, in seconds."""
        self._listeners: dict[str, tuple[Process, Callable[[str], ServerEnd]]] = {}
        self._connections: dict[Connection, None] = {}

    def listen(self, host: str, process: Process, accept: Callable[[str], ServerEnd]) -> None:
        self._listeners[host] = process, accept

    def stop_listening(self, host: str, process: Process) -> None:
        """Reset the connections to a process that has ended; new ones are refused."""
        if host in self._listeners and self._listeners[host][0] is process:
            del self._listeners[host]
        for connection in list(self._connections):
            if connection.server_process is process:
                connection.server_ended()
            elif connection.client_process is process:
                connection.client_ended()

    def is_open(self, source: str, target: str) -> bool:
        return (source, target) not in self.cut

    def delay(self, source: str, target: str) -> float:
        rng = self.rng
        delay_s = 0.0003 + 0.003 * rng.random()
        if rng.random() < 0.02:
            delay_s += 0.3 * rng.random()
        if self.slow:
            for host in (source, target):
                if host in self.slow:
                    delay_s += self.slow[host] * rng.random()
        return delay_s

    async def connect(self, source: str, client: Process, factory: Callable[[], Any], target: str) -> tuple[Any, Any]:
        """As an event loop's create_connection."""
        there, back = self.delay(source, target), self.delay(target, source)
        await asyncio.sleep(there)
        if not self.is_open(source, target):
            await self.loop.create_future()  # until the one who waits gives up
        listening = self._listeners.get(target)
        await asyncio.sleep(back)
        if not self.is_open(target, source):
            await self.loop.create_future()
        if listening is None or not listening[0].alive:
            raise ConnectionRefusedError(f"{target} refuses")
        process, accept = listening
        protocol = factory()
        connection = Connection(
            self, (source, client), (target, process), protocol, process.context.run(accept, source)
        )
        self._connections[connection] = None
        protocol.connection_made(connection)
        return connection, protocol

    def forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)


class Connection(asyncio.Transport):
    """Both ends of one; to the client it is the transport."""

    def __init__(
        self,
        network: Network,
        client: tuple[str, Process],
        server: tuple[str, Process],
        protocol: Any,
        end: ServerEnd,
    ) -> None:
        self._socket = _Socket()
        super().__init__({"socket": self._socket})
        self._network = network
        self._loop = network.loop
        self._client, self.client_process = client
        self._server, self.server_process = server
        self._protocol = protocol
        self._end = end
        self._there_s = self._back_s = 0.0
        self._client_open = self._server_open = True
        self._reset_s = math.inf
        """The client's system drops then all that it has not sent: a message that is late has waited there."""

    def _reaches(self, source: str, target: str, last_s: float) -> float:
        return max(last_s, self._loop.time() + self._network.delay(source, target))

    # -- the client's end ------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._client_open and self._network.is_open(self._client, self._server):
            self._there_s = self._reaches(self._client, self._server, self._there_s)
            sent_s = self._loop.time()
            if self._network.watcher is not None:
                late_s = self._network.watcher(self._client, self._server, bytes(data))
                self._there_s += late_s
                sent_s += late_s
            context = self.server_process.context
            self._loop.call_at(self._there_s, self._arrived, bytes(data), sent_s, context=context)

    def abort(self) -> None:
        if self._client_open:
            self._client_open = False
            if self._socket.resets:
                self._reset_s = self._loop.time()
            self._loop.call_soon(self._protocol.connection_lost, None)
            self._tell_server()

    def client_ended(self) -> None:
        """End the connection with the client's process."""
        self._client_open = False
        self._tell_server()

    def _tell_server(self) -> None:
        self._there_s = self._reaches(self._client, self._server, self._there_s)
        # Messages under way arrive first; over a cut link the server never notices the end.
        if self._network.is_open(self._client, self._server):
            self._loop.call_at(self._there_s, self._server_lost, context=self.server_process.context)
        self._network.forget(self)

    # -- the server's ----------------------------------------------------------------------------------------------

    def _arrived(self, data: bytes, sent_s: float) -> None:
        if sent_s <= self._reset_s and self._server_open and self._network.is_open(self._client, self._server):
            self._loop.create_task(self._serve(data))

    async def _serve(self, data: bytes) -> None:
        answer = await self._end.frame(data)
        if answer is not None and self._server_open and self._network.is_open(self._server, self._client):
            self._back_s = self._reaches(self._server, self._client, self._back_s)
            if self._network.answer_watcher is not None:
                self._back_s += self._network.answer_watcher(self._client, self._server, data)
            self._loop.call_at(self._back_s, self._answered, answer, context=self.client_process.context)

    def _server_lost(self) -> None:
        if self._server_open:
            self._server_open = False
            self._end.lost()

    def server_ended(self) -> None:
        """End the connection with the server's process; the client notices, unless the link is cut."""
        self._server_open = False
        if self._network.is_open(self._server, self._client):
            self._back_s = self._reaches(self._server, self._client, self._back_s)
            self._loop.call_at(self._back_s, self._client_lost, context=self.client_process.context)
        self._network.forget(self)

    def _answered(self, data: bytes) -> None:
        if self._client_open and self._network.is_open(self._server, self._client):
            taken = 0
            while taken < len(data) and self._client_open:
                view = self._protocol.get_buffer(-1)
                piece = data[taken : taken + len(view)]
                view[: len(piece)] = piece
                taken += len(piece)
                self._protocol.buffer_updated(len(piece))

    def _client_lost(self) -> None:
        if self._client_open:
            self._client_open = False
            self._protocol.connection_lost(ConnectionResetError("reset by peer"))


class _Socket:
    """Options of a client's socket."""

    resets = False
    """Whether the end of the connection drops what is unsent."""

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        if (level, option) == (socket.SOL_SOCKET, socket.SO_LINGER):
            self.resets = True
