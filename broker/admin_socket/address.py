"""Where a broker takes orders from its own host: a Unix socket in its first data folder, for its owner alone.

A plain name in a data folder: directories that it does not know keep Apache Kafka from starting, other files do not.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

SOCKET_NAME = ".gregor.sock"
_LONGEST_PATH = 100
"""sockaddr_un has room for 108 bytes, on some systems for 104."""


@contextmanager
def socket_path(folder: str) -> Iterator[str]:
    """The socket's path in a form that is short enough to bind or connect to, for as long as the context lasts. Raises
    OSError."""
    path = os.path.join(folder, SOCKET_NAME)
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield path
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)


def listen(folder: str) -> socket.socket:
    """A listening socket that only this user may connect to. One that a killed broker left is replaced: whoever holds
    the folder's lock is the only broker on it. Raises OSError."""
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
    """Raises OSError: FileNotFoundError and ConnectionRefusedError when no broker runs on the folder."""
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket_path(folder) as path:
            connected.connect(path)
    except OSError:
        connected.close()
        raise
    return connected


def unlink(folder: str) -> None:
    try:
        os.unlink(os.path.join(folder, SOCKET_NAME))
    except FileNotFoundError:
        return
