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

    def refused(self, client_id: str | None, error: ErrorCode) -> None:
        """Count a batch that was answered with an error."""
        name = (client_id or "")[:MAX_CLIENT_ID_CHARACTERS]
        counts = self._counts.get(name)
        if counts is None:
            counts = self._counts.setdefault(name if len(self._counts) < MAX_CLIENTS else OTHERS, {})
        count = counts.setdefault(error, _Count())
        count.add(int(self._clock_s() // WINDOW_S))

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
