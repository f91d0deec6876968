"""A ZooKeeper server as seen over a network that loses connections and responses."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

# Of a response: its size, and the number of its request; below 0 are pings and watch events.
_SIZE = struct.Struct(">i")
_RESPONSE = struct.Struct(">ii")
# The response to the first request: size, protocol version, session timeout, session id, password.
_CONNECTED = struct.Struct(">iiiq4x16s")

Change = Callable[[bytes], bytes | None]
"""Makes another response of one, or None: the connection ends instead."""


@dataclass
class _Connection:
    client: socket.socket
    server: socket.socket

    def end(self) -> None:
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class ZooKeeperProxy:
    """Forwards connections to a server on this machine. A context manager."""

    def __init__(self, server_port: int) -> None:
        self.client_id: tuple[int, bytes] | None = None
        """Session id and password of the last session that began or continued here."""
        self._server_port = server_port
        self._changes: list[Change] = []
        self._connections: list[_Connection] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._ended = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._spawn(self._accept)

    @property
    def connect(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def drop_connections(self) -> None:
        """End the connections; the sessions continue, and clients can connect again."""
        with self._lock:
            for connection in self._connections:
                connection.end()

    def lose_responses(self, count: int) -> None:
        """End the connection instead of each of the next responses: the requests are done."""
        with self._lock:
            self._changes += [lambda _response: None] * count

    def misnumber_response(self) -> None:
        """Have the next response belong to a request that was never sent."""
        with self._lock:
            self._changes.append(lambda response: response[:4] + _SIZE.pack(2**30) + response[8:])

    def close(self) -> None:
        """End the connections, and accept no more: a client is cut off until its session expires."""
        with self._lock:
            self._ended = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_connections()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> ZooKeeperProxy:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _spawn(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                client.close()
                continue
            connection = _Connection(client, server)
            with self._lock:
                if self._ended:
                    client.close()
                    server.close()
                    return
                self._connections.append(connection)
                self._spawn(self._forward, connection)

    def _forward(self, connection: _Connection) -> None:
        """Forward both ways until one end closes."""
        requests = threading.Thread(target=self._forward_requests, args=(connection,), daemon=True)
        requests.start()
        with contextlib.suppress(OSError), connection.server.makefile("rb") as responses:
            for response in self._responses(responses):
                connection.client.sendall(response)
        connection.end()
        requests.join()
        with self._lock:
            self._connections.remove(connection)
        connection.client.close()
        connection.server.close()

    @staticmethod
    def _forward_requests(connection: _Connection) -> None:
        with contextlib.suppress(OSError):
            while data := connection.client.recv(65_536):
                connection.server.sendall(data)
        connection.end()

    def _responses(self, stream: BinaryIO) -> Iterator[bytes]:
        is_first = True
        while len(size := stream.read(_SIZE.size)) == _SIZE.size:
            response: bytes | None = size + stream.read(_SIZE.unpack(size)[0])
            assert response is not None
            if is_first:
                is_first = False
                if len(response) >= _CONNECTED.size:
                    *_, session_id, password = _CONNECTED.unpack_from(response)
                    self.client_id = session_id, password
            elif _RESPONSE.unpack_from(response)[1] >= 0:
                with self._lock:
                    change = self._changes.pop(0) if self._changes else None
                if change is not None:
                    response = change(response)
            if response is None:
                return
            yield response
