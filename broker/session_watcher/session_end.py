"""Ends a ZooKeeper session from outside: with its id and password any process may continue it, and so close it.

Only the standard library is imported: the process that watches over a broker needs little memory.

The requests are those of any ZooKeeper client (ConnectRequest, RequestHeader); each frame begins with its size:

    ConnectRequest   protocol version i32 = 0, last zxid seen i64 = 0, timeout ms i32, session id i64, password, flag
    ConnectResponse  protocol version i32, timeout ms i32, session id i64, password, ...; timeout 0: no such session
    close            xid i32, type i32 = -11
    its response     xid i32, zxid i64, error i32
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

ATTEMPT_S = 2.0
"""The time that one server has to answer."""
PAUSE_S = 0.1
"""Between two attempts with all servers: a leader may be about to be elected."""

_CLOSE_TYPE = -11
_XID = 1
_CONNECT = struct.Struct(">iqiqi")
_CONNECTED = struct.Struct(">iiq")
_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">ii")
_REPLY = struct.Struct(">iqi")
_LONGEST_FRAME_BYTES = 4096

Wrap = Callable[[socket.socket, str], socket.socket]


class Session(NamedTuple):
    """A session as its owner knows it. `servers` are pairs of host and port."""

    session_id: int
    password: bytes
    timeout_ms: int
    servers: tuple[tuple[str, int], ...]

    @property
    def name(self) -> str:
        """Its id, as ZooKeeper's log and tools show it."""
        return f"0x{self.session_id & 0xFFFFFFFFFFFFFFFF:x}"


Close = Callable[[Session, float, Wrap | None], bool]
"""`close_session`, or what stands for it."""


class SessionNotClosed(Exception):
    """No server has closed the session; the text has the cause. It ends at its timeout."""


def close_session(session: Session, limit_s: float, wrap: Wrap | None = None) -> bool:
    """Continue the session and close it, which deletes its ephemeral nodes. Blocks for `limit_s` at most.

    Return False if it had ended already. `wrap` returns the TLS connection of one to the host of that name. Raises
    SessionNotClosed.
    """
    end_s = time.monotonic() + limit_s
    cause = "there was no time to connect"
    while True:
        for server in session.servers:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise SessionNotClosed(cause)
            try:
                return _close_at(server, session, min(left_s, ATTEMPT_S), wrap)
            except (OSError, ValueError, struct.error) as error:
                cause = f"{server[0]}:{server[1]}: {error}"
        if end_s - time.monotonic() <= PAUSE_S:
            raise SessionNotClosed(cause)
        time.sleep(PAUSE_S)


def _close_at(server: tuple[str, int], session: Session, limit_s: float, wrap: Wrap | None) -> bool:
    connection = socket.create_connection(server, limit_s)
    try:
        connection.settimeout(limit_s)
        if wrap is not None:
            connection = wrap(connection, server[0])
        connection.sendall(_framed(_connect_request(session)))
        _, timeout_ms, session_id = _CONNECTED.unpack_from(_frame(connection))
        if timeout_ms <= 0 or session_id != session.session_id:
            return False
        connection.sendall(_framed(_HEADER.pack(_XID, _CLOSE_TYPE)))
        _, _, error = _REPLY.unpack_from(_frame(connection))
        if error:
            raise ValueError(f"the request to close the session was answered with ZooKeeper's error {error}")
        return True
    finally:
        with suppress(OSError):
            connection.close()


def _connect_request(session: Session) -> bytes:
    head = _CONNECT.pack(0, 0, session.timeout_ms, session.session_id, len(session.password))
    return head + session.password + b"\0"


def _framed(body: bytes) -> bytes:
    return _SIZE.pack(len(body)) + body


def _frame(connection: socket.socket) -> bytes:
    (size_bytes,) = _SIZE.unpack(_exactly(connection, _SIZE.size))
    if not 0 <= size_bytes <= _LONGEST_FRAME_BYTES:
        raise ValueError(f"a response of {size_bytes} bytes is not ZooKeeper's")
    return _exactly(connection, size_bytes)


def _exactly(connection: socket.socket, size_bytes: int) -> bytes:
    received = b""
    while len(received) < size_bytes:
        part = connection.recv(size_bytes - len(received))
        if not part:
            raise ConnectionResetError("the server closed the connection")
        received += part
    return received
