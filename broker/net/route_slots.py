"""The limit of the produce routes (broker.net.produce_fast_path) that all connections of a broker store together."""

from __future__ import annotations

_MAX_ROUTES = 65_536
"""A route and its prefix use some 300 bytes."""


class RouteSlots:
    """Counts the routes of all connections. `limit` may be exceeded by none of them; each checks it before `occupy`."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int = _MAX_ROUTES) -> None:
        self.limit = limit
        self.used = 0

    def occupy(self) -> None:
        """Count one more route."""
        self.used += 1

    def release(self, count: int) -> None:
        """Count routes that were removed."""
        self.used -= count
