"""Requests of clients that arrive before the broker knows the topics of its cluster: they are held until it does.

A broker of a cluster accepts connections before the controller has sent it the metadata: the controller is one of those
that connect. Until then a request about a topic would be answered with UNKNOWN_TOPIC_OR_PARTITION, which some clients
take as the end of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gregor.broker.registry import AMONG_BROKERS, Entry
from gregor.broker.security.token_receiver import BEFORE_AUTHENTICATION

SERVED_AT_ONCE = AMONG_BROKERS.union(BEFORE_AUTHENTICATION)
"""The broker learns the metadata by some of these; none of them needs it."""


class EarlyRequests:
    """Those of all connections of a broker."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[Callable[[], None]] | None = []
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
