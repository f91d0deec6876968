"""The peers of one listener whose TLS handshake or SASL exchange is unfinished, in a bounded number.

Each of them costs memory before it is known to be a client. Beyond the bound the oldest ends: a client that proceeds is
soon no stranger any more, and a peer that stops in the middle becomes the oldest. Those that the broker itself delays
(max.connection.creation.rate) are added when their delay is over.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

MAX_STRANGERS = 1000


class Stranger(Protocol):
    def fail(self, reason: str) -> None:
        """End the peer's connection, with a line in the log."""


Peer = TypeVar("Peer", bound=Stranger)


class Strangers(Generic[Peer]):
    """In the order in which they came. `unfinished` names what they have not done, in the plural."""

    def __init__(self, unfinished: str) -> None:
        self._unfinished = unfinished
        self._peers: dict[Peer, None] = {}

    @property
    def present(self) -> list[Peer]:
        return list(self._peers)

    def add(self, peer: Peer) -> None:
        """Count a new peer; above the bound, end the oldest one."""
        if len(self._peers) >= MAX_STRANGERS:
            oldest = next(iter(self._peers))
            self.discard(oldest)
            oldest.fail(f"{MAX_STRANGERS} younger {self._unfinished} are unfinished")
        self._peers[peer] = None

    def discard(self, peer: Peer) -> None:
        """Forget a peer that is authenticated, or whose connection has ended."""
        self._peers.pop(peer, None)
