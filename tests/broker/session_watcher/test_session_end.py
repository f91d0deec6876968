"""A session is closed through a server that plays ZooKeeper's part of the exchange, byte for byte."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gregor.broker.session_watcher.session_end import Session, SessionNotClosed, close_session

PASSWORD = bytes(range(16))
ID = -0x1234567890
CONNECT = (
    bytes.fromhex("0000002d 00000000 0000000000000000 00004650") + struct.pack(">q", ID) + b"\0\0\0\x10" + PASSWORD
)
CLOSE = bytes.fromhex("00000008 00000001 fffffff5")
CLOSED = bytes.fromhex("00000010 00000001 0000000000000007 00000000")
REFUSED = bytes.fromhex("00000010 00000001 0000000000000007 ffffff84")  # -124: authentication is required


def connected(session_id: int, timeout_ms: int) -> bytes:
    body = struct.pack(">iiqi", 0, timeout_ms, session_id, 16) + PASSWORD + b"\0"
    return struct.pack(">i", len(body)) + body


@contextmanager
def server(play: Callable[[socket.socket], None], connections: int = 1) -> Iterator[int]:
    """Serve so many connections; its errors are those of the test."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            for _ in range(connections):
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(30)
                    play(connection)
        except BaseException as error:
            errors.append(error)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(30)
    assert not errors, errors


def exactly(connection: socket.socket, size_bytes: int) -> bytes:
    with connection.makefile("rb") as file:
        return file.read(size_bytes)


def session_at(*ports: int) -> Session:
    return Session(ID, PASSWORD, 18000, tuple(("127.0.0.1", port) for port in ports))


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_continues_the_session_and_closes_it() -> None:
    def play(connection: socket.socket) -> None:
        assert exactly(connection, 4 + 45) == CONNECT + b"\0"
        for byte in connected(ID, 18000):
            connection.sendall(bytes([byte]))
        assert exactly(connection, 12) == CLOSE
        connection.sendall(CLOSED)

    with server(play) as port:
        assert close_session(session_at(port), 30)


def test_a_session_that_has_ended_is_no_error() -> None:
    def play(connection: socket.socket) -> None:
        exactly(connection, 49)
        connection.sendall(connected(0, 0))

    with server(play) as port:
        assert not close_session(session_at(port), 30)


def test_the_next_server_serves_where_one_does_not() -> None:
    def play(connection: socket.socket) -> None:
        exactly(connection, 49)
        connection.sendall(connected(ID, 18000))
        exactly(connection, 12)
        connection.sendall(CLOSED)

    with server(play) as port:
        assert close_session(session_at(unused_port(), port), 30)


@pytest.mark.parametrize(
    ("response", "cause"),
    [
        (b"", "closed the connection"),
        (b"\0\0\0", "closed the connection"),
        (struct.pack(">i", 1 << 30), "is not ZooKeeper's"),
        (struct.pack(">i", -1), "is not ZooKeeper's"),
        (struct.pack(">i", 2) + b"\0\0", "requires a buffer"),
        (connected(ID, 18000), "closed the connection"),
        (connected(ID, 18000) + REFUSED, "error -124"),
    ],
)
def test_what_a_server_answers_instead_is_the_cause(response: bytes, cause: str) -> None:
    def play(connection: socket.socket) -> None:
        exactly(connection, 49)
        connection.sendall(response)
        connection.shutdown(socket.SHUT_WR)
        exactly(connection, 12)

    with server(play) as port, pytest.raises(SessionNotClosed, match=cause) as raised:
        close_session(session_at(port), 0.09)  # one attempt: less than the pause before the next
    assert f"127.0.0.1:{port}: " in str(raised.value)


def test_no_server_at_all() -> None:
    with pytest.raises(SessionNotClosed, match="refused"):
        close_session(session_at(unused_port()), 0.05)
