"""Connections above max.connection.creation.rate on a listener with authentication, and throttled ones."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from gregor.broker.net.connection import Connection
from gregor.broker.security.session import State
from gregor.broker.security.token_receiver import BEFORE_AUTHENTICATION
from gregor.protocol.messages import ApiVersionsRequest
from tests.broker.net.test_connection import Harness, frame, harness, heartbeat, loop, sync_group, turn

__all__ = ["harness", "loop"]  # fixtures


class HeldTimers:
    """An event loop whose timers end at `end_all`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._held: list[Callable[[], None]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_later(self, _delay_s: float, callback: Callable[..., None], *arguments: Any) -> None:
        self._held.append(partial(callback, *arguments))

    def end_all(self) -> None:
        for callback in self._held:
            callback()


def test_a_delayed_connection_authenticates_when_its_delay_is_over(
    harness: Harness, loop: asyncio.AbstractEventLoop
) -> None:
    """Until then it counts neither among the unfinished authentications nor is its time limited."""
    sessions: list[Any] = []

    def begin(connection: Connection, _loop: object) -> Any:
        connection.restrict(1000)
        sessions.append(connection)
        return SimpleNamespace(close=lambda: sessions.remove(connection), state=State.HANDSHAKE)

    harness.broker.handlers |= {key.value: harness.broker.handlers[18] for key in BEFORE_AUTHENTICATION}
    harness.broker.security = SimpleNamespace(authentication=SimpleNamespace(session=begin))
    harness.broker.loop = timers = HeldTimers(loop)
    harness.connections.wait_s = 5.0
    (served_transport, served), (_, foreign), (large_transport, large), (_, left) = (
        harness.connect() for _ in range(4)
    )
    # A byte alone, then the rest: what comes during the delay is kept.
    api_versions = frame(ApiVersionsRequest(), 0, 7)
    for data in (api_versions[:1], api_versions[1:] + api_versions[:9]):
        harness.send(data, served)
    harness.send(heartbeat(1), foreign)
    harness.send(heartbeat(1, "g" * 2000), large)
    left.connection_lost(None)
    turn(loop)
    assert (sessions, served_transport.written, large_transport.aborted) == ([], b"", False)
    timers.end_all()
    turn(loop)
    assert sessions == [served], "the others have left, or sent what nobody may before authentication"
    assert (foreign.closed, large.closed, harness.seen) == (True, True, [])
    assert served_transport.written.count(struct.pack(">i", 7)) == 1
    harness.send(api_versions[9:], served)
    assert served_transport.written.count(struct.pack(">i", 7)) == 2


def test_a_connection_that_would_wait_for_too_long_is_refused(harness: Harness) -> None:
    harness.connections.wait_s = None
    transport, connection = harness.connect()
    assert transport.aborted
    assert connection.closed


def test_a_throttled_connection_may_be_idle(harness: Harness) -> None:
    harness.connection.throttle(3_600_000)
    for _ in range(11):
        harness.connection.sweep(10, 2)
    assert harness.transport.aborted


def test_a_parked_request_of_a_throttled_connection_is_not_idle(harness: Harness) -> None:
    harness.send(sync_group(1))
    harness.connection.throttle(3_600_000)
    for _ in range(50):
        harness.connection.sweep(10, 2)
    assert not harness.transport.aborted
