"""The peers of one listener whose TLS handshake or SASL exchange is unfinished, in a bounded number.

Each of them costs memory before it is known to be a client. Beyond the bound one ends: the oldest of the address that
has most, so that one address which opens many connections ends only its own. A client that proceeds is soon no stranger
any more, and a peer that stops in the middle becomes the oldest of its address. Those that the broker itself delays
(max.connection.creation.rate) are added when their delay is over.
"""

from __future__ import annotations

from collections import Counter
from typing import Generic, Protocol, TypeVar

MAX_STRANGERS = 1000


class Stranger(Protocol):
    @property
    def host(self) -> str:
        """The peer's address, which stays the same."""

    def fail(self, reason: str) -> None:
        """End the peer's connection, with a line in the log."""


Peer = TypeVar("Peer", bound=Stranger)


class Strangers(Generic[Peer]):
    """In the order in which they came. `unfinished` names what they have not done, in the plural."""

    def __init__(self, unfinished: str) -> None:
        self._unfinished = unfinished
        self._peers: dict[Peer, None] = {}
        """In the order in which they came."""
        self._by_host: Counter[str] = Counter()

    @property
    def present(self) -> list[Peer]:
        return list(self._peers)

    def add(self, peer: Peer) -> None:
        """Count a new peer; above the bound, end the oldest one of the host that has most, of several the oldest."""
        self._peers[peer] = None
        self._by_host[peer.host] += 1
        if len(self._peers) > MAX_STRANGERS:
            self._end_one()

    def discard(self, peer: Peer) -> None:
        """Forget a peer that is authenticated, or whose connection has ended."""
        if peer not in self._peers:
            return
        del self._peers[peer]
        self._by_host[peer.host] -= 1
        if not self._by_host[peer.host]:
            del self._by_host[peer.host]

    def _end_one(self) -> None:
        # At most MAX_STRANGERS steps, a tenth of a millisecond: less than a handshake costs.
        most = max(self._by_host.values())
        oldest = next(one for one in self._peers if self._by_host[one.host] == most)
        self.discard(oldest)
        oldest.fail(
            f"{MAX_STRANGERS} other {self._unfinished} are unfinished, and it is the oldest of {most} "
            f"from {oldest.host}: no address has more"
        )
