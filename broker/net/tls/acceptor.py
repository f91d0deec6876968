"""Accepted sockets of a TLS listener until the end of their handshakes.

A peer that has connected and sends nothing costs a descriptor and a small object: memory of OpenSSL is used from the
first byte of a handshake on. Handshakes are limited in number for each listening socket, in time, and by the limits of
connections, which count them too. Each that fails ends with one line in the log.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from gregor.broker.log import logger
from gregor.broker.net.connection import MS_PER_S, held_ms_of
from gregor.broker.net.tls.connection import TlsConnection
from gregor.broker.net.tls.failures import plain_client_text, reason_of
from gregor.broker.security.strangers import Strangers

if TYPE_CHECKING:
    from gregor.broker.net.context import ListenersContext
    from gregor.broker.net.tls.contexts import TlsContext

HANDSHAKE_TIMEOUT_S = 30.0
_SHUTDOWN_TIMEOUT_S = 5.0
_ACCEPTED_AT_ONCE = 100
_RETRY_S = 1.0
_HEAD_BYTES = 8
_TLS_HANDSHAKE = 0x16


class TlsAcceptor:
    """Accepts the connections of one listening socket until `close()`. Unfinished handshakes end with it."""

    def __init__(self, broker: ListenersContext, listener: str, sock: socket.socket, tls: TlsContext) -> None:
        self.broker = broker
        self.listener = listener
        self.tls = tls
        self._sock = sock
        self._delayed: set[Handshake] = set()
        self._open: Strangers[Handshake] = Strangers("TLS handshakes")
        self._closed = False
        broker.loop.add_reader(sock.fileno(), self._accept)

    def close(self) -> None:
        self._closed = True
        self.broker.loop.remove_reader(self._sock.fileno())
        for handshake in (*self._delayed, *self._open.present):
            handshake.close()

    def delay(self, handshake: Handshake) -> None:
        """Keep a handshake that the broker delays: it does not count as unfinished until `begin`."""
        self._delayed.add(handshake)

    def begin(self, handshake: Handshake) -> None:
        """Count a handshake as unfinished from now on."""
        self._delayed.discard(handshake)
        self._open.add(handshake)

    def discard(self, handshake: Handshake) -> None:
        """Forget a handshake that has ended."""
        self._delayed.discard(handshake)
        self._open.discard(handshake)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor is free, mostly
                logger.error("the listener %s cannot accept connections: %s; it tries again", self.listener, error)
                self.broker.loop.remove_reader(self._sock.fileno())
                self.broker.loop.call_later(_RETRY_S, self._accept_again)
                return
            sock.setblocking(False)
            Handshake(self, sock, str(address[0]), f"{address[0]}:{address[1]}").begin()

    def _accept_again(self) -> None:
        if not self._closed:
            self.broker.loop.add_reader(self._sock.fileno(), self._accept)
            self._accept()


class Handshake:
    """One accepted socket, which counts as an open connection, until its TLS connection is made or has failed."""

    __slots__ = (
        "_acceptor",
        "_peeking",
        "_sock",
        "_task",
        "_timer",
        "closed",
        "host",
        "listener",
        "peer",
        "quiet_sweeps",
    )

    def __init__(self, acceptor: TlsAcceptor, sock: socket.socket, host: str, peer: str) -> None:
        self._acceptor = acceptor
        self._sock = sock
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._peeking = False
        self.closed = False
        self.listener = acceptor.listener
        self.host = host
        self.peer = peer
        self.quiet_sweeps = 0

    def begin(self) -> None:
        """Wait for the first bytes, unless a limit of connections refuses, holds or delays the peer."""
        broker = self._acceptor.broker
        loop, connections = broker.loop, broker.connections
        refusal = connections.add(self)
        if refusal is not None:
            self.fail(refusal)
            return
        held_ms = held_ms_of(broker, self.host)
        if held_ms:
            self._acceptor.delay(self)
            self._timer = loop.call_later(held_ms / MS_PER_S, self._close_throttled)
            return
        delay_s = connections.delay_s(self.listener, loop.time())
        if delay_s is None:
            self.fail("too many came at the same time (max.connection.creation.rate)")
        elif delay_s > 0:
            self._acceptor.delay(self)
            self._timer = loop.call_later(delay_s, self._wait_for_bytes)
        else:
            self._wait_for_bytes()

    def _close_throttled(self) -> None:
        logger.debug("closing connection from %s: its address exceeds connection_creation_rate", self.peer)
        self.close()

    def _wait_for_bytes(self) -> None:
        self._acceptor.begin(self)
        loop = self._acceptor.broker.loop
        self._timer = loop.call_later(HANDSHAKE_TIMEOUT_S, self._time_out)
        self._peeking = True
        loop.add_reader(self._sock.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            head = self._sock.recv(_HEAD_BYTES, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.fail(f"the TLS handshake failed: {error.strerror}")
            return
        if not head:
            self.fail("the client closed it before a TLS handshake")
        elif head[0] != _TLS_HANDSHAKE:
            self.fail(plain_client_text(head))
        else:
            self._stop_peeking()
            self._task = asyncio.ensure_future(self._shake_hands())

    def _stop_peeking(self) -> None:
        if self._peeking:
            self._peeking = False
            self._acceptor.broker.loop.remove_reader(self._sock.fileno())

    async def _shake_hands(self) -> None:
        acceptor = self._acceptor
        duplicate = self._sock.dup()  # stays open when the transport closes its socket, for the alert
        try:
            await acceptor.broker.loop.connect_accepted_socket(
                lambda: TlsConnection(acceptor.broker, self.listener, acceptor.tls.rules, self.complete),
                self._sock,
                ssl=acceptor.tls.context,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=_SHUTDOWN_TIMEOUT_S,
            )
        except (TimeoutError, OSError) as error:
            self._send_alert(duplicate, getattr(error, "alert", b""))
            self.fail(f"the TLS handshake failed: {reason_of(error)}")
        finally:
            duplicate.close()

    def _send_alert(self, sock: socket.socket, alert: bytes) -> None:
        """Send the alert of OpenSSL, so that the peer learns why its handshake failed, if the socket has room."""
        if alert:
            try:
                sock.send(alert)
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                return

    def _time_out(self) -> None:
        self.fail(f"its TLS handshake was not over after {HANDSHAKE_TIMEOUT_S:.0f} s")

    def complete(self) -> None:
        """End the count of this handshake: its connection is made."""
        self._end(cancels=False)

    def fail(self, reason: str) -> None:
        """End the handshake, with a line in the log."""
        if not self.closed:
            logger.warning("closing connection from %s to the listener %s: %s", self.peer, self.listener, reason)
            self.close()

    def close(self) -> None:
        """End the handshake, and the connection with it."""
        self._end(cancels=True)

    def finish(self) -> None:
        self.close()

    def sweep(self, sweeps_until_idle: int, sweeps_until_stuck: int) -> None:
        """Leave the end of a handshake to its own timer."""
        self.quiet_sweeps += 1

    def _end(self, *, cancels: bool) -> None:
        if self.closed:
            return
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._stop_peeking()
        if cancels:
            if self._task is None:
                self._sock.close()
            elif self._task is not asyncio.current_task():
                self._task.cancel()
        self._acceptor.discard(self)
        self._acceptor.broker.connections.discard(self)
