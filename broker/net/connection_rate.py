"""How fast new connections come in (max.connection.creation.rate): who comes too fast waits, and is refused where that
would take so long that the client gives up before its turn. Its turn would be nobody's then, and clients that come
again and again would all wait for ever longer.
"""

from __future__ import annotations

from gregor.config.definitions import INT_MAX

LONGEST_DELAY_S = 10.0
"""Less than clients wait for their first answer."""
_BURST_S = 1.0
"""A quiet time is made up for: so much of it at most."""


class CreationRate:
    """Gives each connection its time to begin, `per_second` apart on the average. Pure: the caller knows the time."""

    __slots__ = ("_next_s",)

    def __init__(self) -> None:
        self._next_s = 0.0
        """When the last one that waits begins; in quiet times it lies in the past."""

    def delay_s(self, now_s: float, per_second: int) -> float:
        """How long a connection that is here now has to wait."""
        if per_second >= INT_MAX or per_second <= 0:
            return 0.0
        return max(0.0, self._after(now_s, per_second) - now_s)

    def take(self, now_s: float, per_second: int) -> None:
        """It will wait, so the next one comes after it."""
        if 0 < per_second < INT_MAX:
            self._next_s = self._after(now_s, per_second)

    def _after(self, now_s: float, per_second: int) -> float:
        return max(self._next_s, now_s - _BURST_S) + 1.0 / per_second
