"""The rate of new connections (max.connection.creation.rate). A connection above it is delayed, and refused if the
delay is longer than a client waits: its reserved turn would be lost, and clients that connect again and again would all
wait longer and longer.
"""

from __future__ import annotations

from gregor.config.definitions import INT_MAX

LONGEST_DELAY_S = 10.0
"""Less than clients wait for their first answer."""
_BURST_S = 1.0
"""Limit of the quiet time that later connections may make up for."""


class CreationRate:
    """The time at which each connection may begin, `per_second` on the average. Pure: the caller passes the time."""

    __slots__ = ("_next_s",)

    def __init__(self) -> None:
        self._next_s = 0.0
        """The time at which the last delayed connection begins; in quiet times it is in the past."""

    def delay_s(self, now_s: float, per_second: int) -> float:
        """Return the delay of a connection that arrives now."""
        if per_second >= INT_MAX or per_second <= 0:
            return 0.0
        return max(0.0, self._after(now_s, per_second) - now_s)

    def reserve(self, now_s: float, per_second: int) -> None:
        """Reserve the next turn for a connection, which will wait for it."""
        if 0 < per_second < INT_MAX:
            self._next_s = self._after(now_s, per_second)

    def _after(self, now_s: float, per_second: int) -> float:
        return max(self._next_s, now_s - _BURST_S) + 1.0 / per_second
