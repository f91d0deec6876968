"""All open connections: how many there may be, and which of them have gone quiet."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.connection import Connection
    from config.broker import BrokerConfig

_SWEEPS_PER_IDLE_TIME = 10
_LONGEST_SWEEP_S = 5.0
_STALLED_AFTER_S = 10.0
"""A frame that holds memory others wait for, and of which nothing came for this long, loses it with its connection."""


class Connections:
    """Obeys max.connections, max.connections.per.ip and connections.max.idle.ms."""

    def __init__(self, config: BrokerConfig) -> None:
        self._open: set[Connection] = set()
        self._by_host: Counter[str] = Counter()
        self._max = config["max.connections"]
        self._max_per_ip = config["max.connections.per.ip"]
        self._idle_s = config["connections.max.idle.ms"] / 1000
        self._sweep_s = (
            min(self._idle_s / _SWEEPS_PER_IDLE_TIME, _LONGEST_SWEEP_S) if self._idle_s > 0 else _LONGEST_SWEEP_S
        )
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection) -> str | None:
        """Count a new connection in. Returns why it must be refused, or None."""
        self._open.add(connection)
        self._by_host[connection.host] += 1
        if len(self._open) > self._max:
            return f"max.connections={self._max} are open"
        if self._by_host[connection.host] > self._max_per_ip:
            return f"max.connections.per.ip={self._max_per_ip} are open from this address"
        return None

    def discard(self, connection: Connection) -> None:
        if connection in self._open:
            self._open.discard(connection)
            self._by_host[connection.host] -= 1
            if not self._by_host[connection.host]:
                del self._by_host[connection.host]

    def start_sweeping(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self._sweep_s, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        idle = int(self._idle_s / self._sweep_s) if self._idle_s > 0 else 0
        stalled = max(1, int(_STALLED_AFTER_S / self._sweep_s))
        for connection in list(self._open):
            connection.sweep(idle, stalled)
        self.start_sweeping(loop)

    def close_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._open):
            connection.close()
