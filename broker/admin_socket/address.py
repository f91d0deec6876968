"""The admin socket of a broker: a Unix socket in its first data folder, which only the owner can open.

It is no directory: Apache Kafka does not start on unknown directories in a data folder, but does on other files.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

SOCKET_NAME = ".gregor.sock"
_MAX_PATH_BYTES = 100
"""sockaddr_un has room for 108 bytes, on some systems for 104."""


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
