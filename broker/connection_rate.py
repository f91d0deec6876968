"""How fast new connections come in (max.connection.creation.rate): nobody is refused, who comes too fast waits."""

from __future__ import annotations

from config.definitions import INT_MAX

_BURST_S = 1.0
"""A quiet time is made up for: so much of it at most."""


class CreationRate:
    """Gives each connection its time to begin, `per_second` apart on the average. Pure: the caller knows the time."""

    __slots__ = ("_next_s",)

    def __init__(self) -> None:
        self._next_s = 0.0
        """When the next connection would be due if none had been let in ahead of its time."""

    def delay_s(self, now_s: float, per_second: int) -> float:
        """How long the connection that is here now has to wait."""
        if per_second >= INT_MAX or per_second <= 0:
            return 0.0
        due_s = max(self._next_s, now_s - _BURST_S)
        self._next_s = due_s + 1.0 / per_second
        return max(0.0, self._next_s - now_s)
