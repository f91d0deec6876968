"""Sockets that accept connections, one or more for each configured listener."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig
    from gregor.config.listeners import Listener

_MIN_BACKLOG = 1024
"""A connection above the backlog is delayed by a second, after which the client sends its SYN again."""


class BindError(OSError):
    """A listener's address cannot be bound; the message names it and the remedy."""


def bind(listener: Listener, config: BrokerConfig) -> list[socket.socket]:
    """Open the listening sockets of one listener, all on one port (chosen by the system for port 0).

    `localhost` means both loopback addresses, as clients try either; an empty host every address of both families.
    Raises BindError.
    """
    sockets: list[socket.socket] = []
    port = listener.port
    try:
        for family, host in _addresses(listener.host, port):
            sock = _bind_one(family, host, port, config)
            if sock is not None:
                port = sock.getsockname()[1]
                sockets.append(sock)
        if not sockets:
            raise OSError("no address family of this machine fits")
    except OSError as error:
        for sock in sockets:
            sock.close()
        reason = error.strerror or str(error)
        raise BindError(
            f"{listener.text} cannot be bound: {reason}; is another broker running, or does the host not exist?"
        ) from None
    return sockets


def backlog(config: BrokerConfig) -> int:
    """Return how many connections the kernel queues until they are accepted."""
    configured: int = config["socket.listen.backlog.size"]
    return max(configured, _MIN_BACKLOG)


def _addresses(host: str, port: int) -> list[tuple[int, str]]:
    if host == "localhost":
        return [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
    if host == "":
        return [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")]
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((int(family), str(address[0])) for family, _, _, _, address in found))


def _bind_one(family: int, host: str, port: int, config: BrokerConfig) -> socket.socket | None:
    """Open one socket. None if the machine lacks the address family, as `localhost` and the empty host permit."""
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Accepted sockets inherit these. Without a configured size the kernel's own tuning is better.
        for key, option in (
            ("socket.receive.buffer.bytes", socket.SO_RCVBUF),
            ("socket.send.buffer.bytes", socket.SO_SNDBUF),
        ):
            if config.source(key) != "DEFAULT_CONFIG" and config[key] > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, config[key])
        sock.bind((host, port))
        sock.listen(backlog(config))
    except OSError:
        sock.close()
        if family == socket.AF_INET6 and host in ("::1", "::"):
            return None
        raise
    sock.setblocking(False)
    return sock
