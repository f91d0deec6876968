"""The peers of one listener whose TLS handshake or SASL exchange is unfinished, in a bounded number.

Each of them costs memory before it is known to be a client. Beyond the bound one ends: the oldest of the address that
has most, so that one address which opens many connections ends only its own. A client that proceeds is soon no stranger
any more, and a peer that stops in the middle becomes the oldest of its address. Those that the broker itself delays
(max.connection.creation.rate) are added when their delay is over.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, Protocol, TypeVar

MAX_STRANGERS = 1000
_STALE_FACTOR = 4
"""The heap has at most this multiple of MAX_STRANGERS entries."""


class Stranger(Protocol):
    @property
    def host(self) -> str:
        """The peer's address, which stays the same."""

    def fail(self, reason: str) -> None:
        """End the peer's connection, with a line in the log."""


Peer = TypeVar("Peer", bound=Stranger)
_Rank = tuple[int, int, str]  # peers of a host as a negative number, number of its oldest peer, the host


class Strangers(Generic[Peer]):
    """In the order in which they came. `unfinished` names what they have not done, in the plural."""

    def __init__(self, unfinished: str) -> None:
        self._unfinished = unfinished
        self._numbers = count()
        self._peers: dict[Peer, int] = {}
        self._by_host: dict[str, dict[Peer, None]] = {}
        self._ranks: list[_Rank] = []
        """A heap with the present rank of each host, and with former ones."""

    @property
    def present(self) -> list[Peer]:
        return list(self._peers)

    def add(self, peer: Peer) -> None:
        """Count a new peer; above the bound, end the oldest one of the host that has most, of several the oldest."""
        self._peers[peer] = next(self._numbers)
        self._by_host.setdefault(peer.host, {})[peer] = None
        self._changed(peer.host)
        if len(self._peers) > MAX_STRANGERS:
            self._end_one()

    def discard(self, peer: Peer) -> None:
        """Forget a peer that is authenticated, or whose connection has ended."""
        if self._peers.pop(peer, None) is None:
            return
        peers = self._by_host[peer.host]
        del peers[peer]
        if peers:
            self._changed(peer.host)
        else:
            del self._by_host[peer.host]

    def _end_one(self) -> None:
        while (rank := self._ranks[0]) != self._rank(host := rank[2]):
            heappop(self._ranks)
        peers = self._by_host[host]
        oldest, peers_of_host = next(iter(peers)), len(peers)
        self.discard(oldest)
        oldest.fail(
            f"{MAX_STRANGERS} other {self._unfinished} are unfinished, and it is the oldest of {peers_of_host} "
            f"from {host}: no address has more"
        )

    def _changed(self, host: str) -> None:
        if len(self._ranks) >= _STALE_FACTOR * MAX_STRANGERS:
            self._ranks = [self._rank(one) for one in self._by_host]
            heapify(self._ranks)
        else:
            heappush(self._ranks, self._rank(host))

    def _rank(self, host: str) -> _Rank:
        peers = self._by_host.get(host)
        return (-len(peers), self._peers[next(iter(peers))], host) if peers else (0, 0, host)
