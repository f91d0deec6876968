"""The state of a shard that its parts share: transactional ids, and what is remembered about them in memory only."""

from __future__ import annotations

from gregor.coordinator.txn.ports import Markers
from gregor.coordinator.txn.states import TransactionState
from gregor.coordinator.txn.transaction import ProducerIdAndEpoch, Transaction
from gregor.protocol.deferred import Deferred


class ShardState:
    """`transactions` is hard state, which only `replay` of the shard changes; the rest is soft."""

    __slots__ = ("end_offsets", "identities_before", "markers", "transactions", "waiting_for_end")

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        # The offset after the last record of each transactional id.
        self.end_offsets: dict[str, int] = {}
        # The identity that the same producer had before its epoch was bumped: it may retry with that one, because it
        # may never have received the answer (KIP-360). Apache Kafka, too, forgets it when the coordinator moves.
        self.identities_before: dict[str, ProducerIdAndEpoch] = {}
        # Markers that are being written.
        self.markers: dict[str, Markers] = {}
        self.waiting_for_end: dict[str, list[Deferred[None]]] = {}

    def pop_markers(self) -> list[Markers]:
        """Return the markers that are being written, and forget them."""
        markers, self.markers = self.markers, {}
        return list(markers.values())

    def state_of(self, transactional_id: str) -> TransactionState:
        """Return the state of a transactional id; Dead if there is none."""
        transaction = self.transactions.get(transactional_id)
        return TransactionState.DEAD if transaction is None else transaction.state

    def end_of(self, transactional_id: str) -> Deferred[None]:
        """Return what completes once the transaction that is open now has ended, and fails if it ends elsewhere."""
        ended: Deferred[None] = Deferred()
        self.waiting_for_end.setdefault(transactional_id, []).append(ended)
        return ended

    def forget_end_of(self, transactional_id: str, ended: Deferred[None]) -> None:
        """Drop a wait that is over."""
        waiting = self.waiting_for_end.get(transactional_id, [])
        if ended in waiting:
            waiting.remove(ended)
        if not waiting:
            self.waiting_for_end.pop(transactional_id, None)

    def set_identity_before(self, transactional_id: str, identity: ProducerIdAndEpoch | None) -> None:
        """Remember the identity before the current one, or forget it: only one other producer can follow."""
        if identity is None:
            self.identities_before.pop(transactional_id, None)
        else:
            self.identities_before[transactional_id] = identity
