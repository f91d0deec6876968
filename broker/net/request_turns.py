"""Requests that wait: each is too large, or too many come at once, for one turn of the event loop; or they come early.

Apache Kafka has threads for that. Here a request about tens of thousands of items is decoded, and its response encoded,
in steps of a fraction of a millisecond (protocol.codec.compiler), which go through the broker's gate; the handlers do
the same with their own work. Of small requests that thousands of connections send at the same moment, each turn of the
loop serves some; the others wait in the order of their arrival, and the gate runs them in turns, too.

A broker of a cluster accepts connections before the controller has sent it the metadata: the controller is one of those
that connect. Until then a request about a topic would be answered with UNKNOWN_TOPIC_OR_PARTITION, which ends the
transaction of some clients; so requests of clients are held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from gregor.broker.jobs.turns import TurnQueue
from gregor.broker.registry import AMONG_BROKERS, Entry
from gregor.broker.security.token_receiver import BEFORE_AUTHENTICATION
from gregor.protocol.deferred import Deferred, outcome_of

if TYPE_CHECKING:
    from gregor.broker.net.receive_buffers import BufferPool, OwnedBuffer
    from gregor.protocol.turns import Gate

LARGE_REQUEST_BYTES = 16 * 1024
"""To decode a longer request at once could need several milliseconds. Produce requests are exempt: their records are
not decoded."""

MAX_IN_A_TURN = 32
"""Requests of eager handlers, of all connections together, that are served as they arrive in one turn of the loop. A
long request counts for several: its handler needs as much more time."""
BYTES_PER_COUNT = 512
REQUESTS_PER_STEP = 8
"""Requests that waited and are served before the clock is read again, 0.1 ms each: a turn of the loop costs as much as
a fraction of one, also where the machine is so busy that the time of a turn is over after the first."""
_UNCOUNTED = 8
"""After this many requests the end of the turn is awaited, which costs a callback: a request that comes alone does not
pay for it."""

SERVED_AT_ONCE = AMONG_BROKERS.union(BEFORE_AUTHENTICATION)
"""The broker learns the metadata by some of these; none of them needs it."""


class RequestTurns:
    """The requests of eager handlers, of all connections of a broker."""

    __slots__ = ("_is_counting", "_loop", "_queue", "_served", "_waiting")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, gate: Gate, spawn: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        """`spawn` runs a coroutine as a task of the broker."""
        self._loop = loop
        self._queue = TurnQueue(loop, gate, spawn, at_once=REQUESTS_PER_STEP)
        self._waiting = self._queue.waiting
        self._served = 0
        self._is_counting = False
        """A callback of the next turn of the loop resets `_served`."""

    def admits(self, size_bytes: int) -> bool:
        """Count a request that has arrived; return whether it may be served at once."""
        if self._waiting:
            return False
        self._served += 1 + size_bytes // BYTES_PER_COUNT
        if self._served > _UNCOUNTED and not self._is_counting:
            self._is_counting = True
            self._loop.call_soon(self._end_turn)
        return self._served < MAX_IN_A_TURN

    def postpone(self, serve: Callable[[], None]) -> None:
        """Serve a request that was not admitted after those that wait already. `serve` must not raise."""
        self._queue.add(serve)

    def _end_turn(self) -> None:
        self._is_counting = False
        self._served = 0


class EarlyRequests:
    """Those of all connections of a broker."""

    __slots__ = ("_held",)

    def __init__(self, *, are_held: bool) -> None:
        self._held: list[Callable[[], None]] | None = [] if are_held else None
        """None once the broker knows its cluster."""

    @property
    def are_held(self) -> bool:
        return self._held is not None

    def served_at_once(self, handlers: Mapping[int, Entry]) -> Mapping[int, Entry]:
        """Return the part of the table whose requests are not held now."""
        if self._held is None:
            return handlers
        return {key: entry for key, entry in handlers.items() if entry.key in SERVED_AT_ONCE}

    def hold(self, serve: Callable[[], None]) -> None:
        """Call `serve`, which must not raise, when the broker knows its cluster."""
        assert self._held is not None
        self._held.append(serve)

    def serve_all(self) -> None:
        """Serve those that were held, and hold none from now on."""
        held, self._held = self._held or (), None
        for serve in held:
            serve()


async def serve_large(
    handle: Callable[[Any], Any],
    decoded: Awaitable[tuple[Any, int]],
    data: memoryview,
    owned: OwnedBuffer | None,
    pool: BufferPool,
) -> Any:
    """Return the response to a request that is being decoded from `data`. After the decoding the buffer `owned`, which
    contains the data, returns to the pool. Raises MalformedMessage, and the errors of the handler."""
    try:
        request, _ = await decoded
    finally:
        data.release()
        if owned is not None:
            pool.give_back(owned)
    result = handle(request)
    if isinstance(result, Deferred):
        return await outcome_of(result, asyncio.get_running_loop().create_future())
    return await result if isinstance(result, Awaitable) else result
