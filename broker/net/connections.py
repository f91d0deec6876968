"""All open connections: their limits, and the end of those that are idle."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from gregor.broker.log import logger
from gregor.broker.net.connection_rate import LONGEST_DELAY_S, CreationRate

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig

CLOSED_AT_ONCE = 50
_SWEEPS_PER_IDLE_TIME = 10
_LONGEST_SWEEP_S = 5.0
_STUCK_AFTER_S = 10.0
"""A connection ends if its unfinished frame has memory that others wait for, and nothing of it arrived for this
time."""


class OpenConnection(Protocol):
    """A connection, as far as it is counted and closed."""

    listener: str
    host: str
    quiet_sweeps: int
    """Sweeps since the last of its requests."""

    def close(self) -> None: ...
    def fail(self, reason: str) -> None: ...
    def finish(self) -> None: ...
    def sweep(self, sweeps_until_idle: int, sweeps_until_stuck: int) -> None: ...


class Connections:
    """Obeys max.connections and max.connection.creation.rate, of the broker and of single listeners,
    max.connections.per.ip with its overrides, also when they change while the broker runs; connections.max.idle.ms; and
    queued.max.requests: `queued` of them wait, whole, behind one at work on their connection.

    Where the brokers have a listener of their own, its connections are not subject to the limits of the whole broker,
    as in Apache Kafka: clients must not cut a broker off from its cluster.
    """

    def __init__(self, config: BrokerConfig, on_opened: Callable[[int], None] = lambda count: None) -> None:
        """`on_opened` is called with the number of open connections whenever one is added."""
        self._config = config
        self._open: set[OpenConnection] = set()
        self._by_host: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._rates: defaultdict[str, CreationRate] = defaultdict(CreationRate)
        self.queued = 0
        self.max_queued: int = config["queued.max.requests"]
        self._overrides_text = ""
        self._overrides: dict[str, int] = {}
        self._idle_s = config["connections.max.idle.ms"] / 1000
        self._sweep_s = (
            min(self._idle_s / _SWEEPS_PER_IDLE_TIME, _LONGEST_SWEEP_S) if self._idle_s > 0 else _LONGEST_SWEEP_S
        )
        self._left: deque[OpenConnection] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._on_opened = on_opened

    def count_queued(self, change: int) -> None:
        """Count a whole request that waits behind one of its connection, or one that does so no longer."""
        self.queued += change

    def __len__(self) -> int:
        return len(self._open)

    @property
    def present(self) -> list[OpenConnection]:
        return list(self._open)

    @property
    def by_listener(self) -> dict[str, int]:
        """The numbers of open connections by listener name; 0 where all have ended."""
        return dict(self._by_listener)

    @property
    def addresses(self) -> frozenset[str]:
        """The addresses of the peers with open connections."""
        return frozenset(self._by_host)

    def add(self, connection: OpenConnection) -> str | None:
        """Count a new connection. Return why it must be refused, or None."""
        self._open.add(connection)
        self._by_host[connection.host] += 1
        self._by_listener[connection.listener] += 1
        self._on_opened(len(self._open))
        if self._stopping:
            return "the broker is stopping"
        total: int = self._config["max.connections"]
        is_of_brokers = self._is_of_brokers(connection.listener)
        if len(self._open) > total and not is_of_brokers:
            return f"max.connections={total} are open"
        limit = self._config.listener_value(connection.listener, "max.connections")
        if limit is not None and self._by_listener[connection.listener] > limit:
            return f"max.connections={limit} of the listener {connection.listener} are open"
        limit = self._limit_of(connection.host)
        if self._by_host[connection.host] > limit:
            return f"{limit} are open from this address (max.connections.per.ip)"
        if len(self._open) > total:
            self._close_one_of_others(connection.listener, total)
        return None

    def _is_of_brokers(self, listener: str) -> bool:
        """Whether it is the listener of the brokers, and clients have another one."""
        return listener == self._config.inter_broker_listener_name and len(self._config.listeners) > 1

    def _close_one_of_others(self, listener: str, limit: int) -> None:
        """Close the least recently used connection of the other listeners."""
        others = [one for one in self._open if one.listener != listener]
        if others:
            max(others, key=lambda one: one.quiet_sweeps).fail(
                f"max.connections={limit} are open and a broker has connected to the listener {listener}; this one"
                " has been without a request for longest"
            )

    def delay_s(self, listener: str, now_s: float) -> float | None:
        """Return the delay of a new connection by max.connection.creation.rate, of the broker and of its listener; None
        if the connection must be refused because the delay is too long.
        """
        rates = []
        if not self._is_of_brokers(listener):
            rates.append((self._rates[""], self._config["max.connection.creation.rate"]))
        own = self._config.listener_value(listener, "max.connection.creation.rate")
        if own is not None:
            rates.append((self._rates[listener], own))
        delay = max((rate.delay_s(now_s, per_second) for rate, per_second in rates), default=0.0)
        if delay > LONGEST_DELAY_S:
            return None
        for rate, per_second in rates:
            rate.reserve(now_s, per_second)
        return delay

    def close_listener(self, listener: str) -> None:
        """End the connections of a listener that is removed."""
        for connection in [one for one in self._open if one.listener == listener]:
            connection.close()

    def _limit_of(self, host: str) -> int:
        text: str = self._config["max.connections.per.ip.overrides"]
        if text != self._overrides_text:
            self._overrides_text, self._overrides = text, parse_overrides(text, numbers_only=True)
            if any(char.isalpha() for char in text):
                # A name server may need seconds to resolve the names: their limits count after that.
                resolving = asyncio.get_running_loop().run_in_executor(None, parse_overrides, text)
                resolving.add_done_callback(lambda answer: self._resolved(text, answer))
        limit: int = self._overrides.get(host, self._config["max.connections.per.ip"])
        return limit

    def _resolved(self, text: str, answer: asyncio.Future[dict[str, int]]) -> None:
        if text == self._overrides_text and not answer.cancelled():
            self._overrides = answer.result()

    def discard(self, connection: OpenConnection) -> None:
        if connection in self._open:
            self._open.discard(connection)
            self._by_listener[connection.listener] -= 1
            self._by_host[connection.host] -= 1
            if not self._by_host[connection.host]:
                del self._by_host[connection.host]

    def left(self, connection: OpenConnection, loop: asyncio.AbstractEventLoop) -> None:
        """Close a connection whose peer has left. If thousands leave at once, some are closed in each turn of the
        loop."""
        self._left.append(connection)
        if len(self._left) == 1:
            loop.call_soon(self._close_some, loop)

    def _close_some(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(min(CLOSED_AT_ONCE, len(self._left))):
            self._left.popleft().finish()
        if self._left:
            loop.call_soon(self._close_some, loop)

    def start_sweeping(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self._sweep_s, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self.start_sweeping(loop)
        idle = int(self._idle_s / self._sweep_s) if self._idle_s > 0 else 0
        stuck = max(1, int(_STUCK_AFTER_S / self._sweep_s))
        for connection in list(self._open):
            connection.sweep(idle, stuck)

    def close_all(self) -> None:
        """Close all connections, and refuse new ones: nothing may be written to logs that are closed."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._open):
            connection.close()


def parse_overrides(text: str, *, numbers_only: bool = False) -> dict[str, int]:
    """Return limits by address, from `host:count,host:count`. A name stands for all its addresses; a malformed pair, or
    a name that cannot be resolved, is omitted with a line in the log. `numbers_only`: names are omitted without a line,
    and are not resolved.
    """
    limits: dict[str, int] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = pair.rpartition(":")
        try:
            flags = socket.AI_NUMERICHOST if numbers_only else 0
            found = socket.getaddrinfo(host.strip(" []"), None, type=socket.SOCK_STREAM, flags=flags)
            limits.update(dict.fromkeys((str(address[0]) for *_, address in found), int(count)))
        except (OSError, ValueError) as error:
            if numbers_only:
                continue
            logger.warning("max.connections.per.ip.overrides: %s is left out: %s", pair, error)
    return limits
