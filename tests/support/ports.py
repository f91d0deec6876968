"""TCP ports of tests: each process that chooses some has slices of its own, so that no two processes choose the same.

A broker that is killed, or not started yet, does not listen on its port. Another run of tests at the same time, which
found that port free, would bind it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

FIRST_PORT = 10_000
SLICE_PORTS = 128
USUAL_EPHEMERAL = 32_768
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def end_of_ports(path: Path = EPHEMERAL_RANGE) -> int:
    """Return the first port that a system gives to outgoing connections: while a broker is down, a client that connects
    to its port again and again could be given that very port for its own end."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        lowest = int(path.read_text().split()[0])
        if lowest >= FIRST_PORT + SLICE_PORTS:
            return lowest
    return USUAL_EPHEMERAL


class Ports:
    """The ports of this process, each of them returned once. A lock on a file holds each slice until the process ends,
    or until `close`."""

    def __init__(self, folder: Path, end: int) -> None:
        self._folder = folder
        self._slices = range(FIRST_PORT, end - SLICE_PORTS + 1, SLICE_PORTS)
        self._locks: list[int] = []
        self._own: list[int] = []
        self._left: Iterator[int] = iter(())

    def next(self) -> int:
        """Return a port that nothing listens on."""
        while True:
            for port in self._left:
                if _is_free(port):
                    return port
            self._take_slice()

    def prefer(self, port: int) -> int:
        """Return this port, which is below those of the slices; another one where something listens on it, or where
        another process, or this one, was given it."""
        self._folder.mkdir(mode=0o777, exist_ok=True)
        lock = self._lock(port)
        if lock is None:
            return self.next()
        self._locks.append(lock)
        return port if _is_free(port) else self.next()

    def close(self) -> None:
        """Let other processes have the slices."""
        while self._locks:
            os.close(self._locks.pop())
        self._own.clear()

    def _take_slice(self) -> None:
        """Hold one more slice. Where all are held, the ports of this process's own slices are used again."""
        self._folder.mkdir(mode=0o777, exist_ok=True)
        for first in self._slices:
            if first in self._own:
                continue
            lock = self._lock(first)
            if lock is None:
                continue
            self._locks.append(lock)
            self._own.append(first)
            self._left = iter(range(first, first + SLICE_PORTS))
            return
        if not self._own:
            raise RuntimeError(f"every slice of ports is held by another process: {self._folder}")
        self._left = iter([port for first in self._own for port in range(first, first + SLICE_PORTS)])

    def _lock(self, number: int) -> int | None:
        """Return the descriptor that holds the lock of this number; None where another one holds it."""
        lock = os.open(self._folder / str(number), os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return None
        return lock


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


_ports = Ports(Path(tempfile.gettempdir()) / "gregor-tests-ports", end_of_ports())


def free_port() -> int:
    """Return a TCP port that nothing listens on, and that no other process of tests is given."""
    return _ports.next()


def preferred_port(port: int) -> int:
    """Return this port, or a free one where it is in use by anything, other tests included."""
    return _ports.prefer(port)
