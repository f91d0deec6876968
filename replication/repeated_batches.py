"""Batches of clients that this broker refused, or had already, counted by client id: of clients that retry.

Nothing here is on the way of a batch that is appended for the first time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from gregor.protocol.errors import ErrorCode

MAX_CLIENTS = 1000
OTHERS = "(others)"
"""In place of further client ids, which clients choose."""
MAX_CLIENT_ID_CHARACTERS = 100
WINDOW_S = 300.0


class RepeatedBatches(NamedTuple):
    """The batches of one client with one outcome: since the start of the broker, and in the last one to two windows."""

    client_id: str
    error_name: str
    """Of the error code; DUPLICATE_SEQUENCE_NUMBER for a batch that was there already, which Kafka answers like a
    new one."""
    total: int
    recent: int


class _Count:
    __slots__ = ("before", "now", "total", "window")

    def __init__(self) -> None:
        self.total = self.now = self.before = 0
        self.window = 0

    def enter(self, window: int) -> None:
        """Make `now` the count of this window, and `before` that of the one before."""
        if window != self.window:
            self.before = self.now if window == self.window + 1 else 0
            self.now = 0
            self.window = window

    def include(self, idle: _Count) -> None:
        """Add the total of a client without recent batches."""
        self.total += idle.total

    def add(self, window: int) -> None:
        """Count a batch of this window."""
        self.enter(window)
        self.total += 1
        self.now += 1


class ClientRepeats:
    """Counts; only grows but for the recent counts."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._counts: dict[str, dict[ErrorCode, _Count]] = {}
        self._pruned_window = -1

    def refused(self, client_id: str | None, error: ErrorCode) -> None:
        """Count a batch that was answered with an error."""
        name, window = (client_id or "")[:MAX_CLIENT_ID_CHARACTERS], int(self._clock_s() // WINDOW_S)
        counts = self._counts.get(name)
        if counts is None:
            if len(self._counts) >= MAX_CLIENTS and window != self._pruned_window:
                self._prune(window)
            counts = self._counts.setdefault(name if len(self._counts) < MAX_CLIENTS else OTHERS, {})
        counts.setdefault(error, _Count()).add(window)

    def _prune(self, window: int) -> None:
        """Add the counts of clients that have not retried lately to those of the others; once in a window."""
        self._pruned_window = window
        for client_id in [name for name in self._counts if name != OTHERS]:
            counts = self._counts[client_id]
            for count in counts.values():
                count.enter(window)
            if any(count.now or count.before for count in counts.values()):
                continue
            others = self._counts.setdefault(OTHERS, {})
            for error, count in self._counts.pop(client_id).items():
                others.setdefault(error, _Count()).include(count)

    def duplicate(self, client_id: str | None) -> None:
        """Count a batch that the log had already."""
        self.refused(client_id, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)

    def read(self) -> list[RepeatedBatches]:
        """Return the counts of all clients."""
        window = int(self._clock_s() // WINDOW_S)
        found = []
        for client_id, counts in self._counts.items():
            for error, count in counts.items():
                count.enter(window)
                found.append(RepeatedBatches(client_id, error.name, count.total, count.now + count.before))
        return found
