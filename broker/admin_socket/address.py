"""The admin socket of a broker: a Unix socket in its first data folder, which only the owner can open.

It is no directory: Apache Kafka does not start on unknown directories in a data folder, but does on other files.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct

SOCKET_NAME = ".gregor.sock"
_MAX_PATH_BYTES = 100
"""sockaddr_un has room for 108 bytes, on some systems for 104."""

_CREDENTIALS = Struct("3i")
"""struct ucred: process, user and group of the peer."""


@contextmanager
def socket_path(folder: str) -> Iterator[str]:
    """Yield the socket's path in a form that is short enough to bind or connect to, valid in the context. Raises
    OSError."""
    path = os.path.join(folder, SOCKET_NAME)
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        yield path
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)


def listen(folder: str) -> socket.socket:
    """Return a listening socket that only this user may connect to. One that a killed broker left is replaced: the
    holder of the folder's lock is the only broker on it. Raises OSError."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket_path(folder) as path:
            unlink(folder)
            mask = os.umask(0o177)
            try:
                listening.bind(path)
            finally:
                os.umask(mask)
        listening.listen(16)
    except OSError:
        listening.close()
        raise
    return listening


def is_own_user(connected: socket.socket) -> bool:
    """Return whether the process at the other end belongs to the user of this one, or to root; on systems that do not
    report it, the permissions of the file decide alone."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    _, user_id, _ = _CREDENTIALS.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return user_id in (0, os.geteuid())


def connect(folder: str) -> socket.socket:
    """Connect to the broker on this folder. Raises OSError: FileNotFoundError and ConnectionRefusedError if none
    runs."""
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket_path(folder) as path:
            connected.connect(path)
    except OSError:
        connected.close()
        raise
    return connected


def unlink(folder: str) -> None:
    """Remove the socket, if it is there. Raises OSError."""
    try:
        os.unlink(os.path.join(folder, SOCKET_NAME))
    except FileNotFoundError:
        return
