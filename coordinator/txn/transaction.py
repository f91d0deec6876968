"""The hard state of one transactional id, and the transitions that records of the log stand for.

Kafka: TransactionMetadata and TxnTransitMetadata. Fields of its memory that are in no record are not here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from gregor.coordinator.txn.partitions import NO_PARTITIONS, PartitionSet
from gregor.coordinator.txn.states import IDLE, PREDECESSORS, TransactionState
from gregor.protocol.topic_partition import TopicPartition

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1
MAX_EPOCH = 2**15 - 1
"""Never given to a client, so that each epoch of a client can be fenced."""
LAST_CLIENT_EPOCH = MAX_EPOCH - 1

EPOCH_PER_TRANSACTION = 2
"""The transaction version from which on each transaction has an epoch of its own (KIP-890, part 2)."""


class ProducerIdAndEpoch(NamedTuple):
    """The identity of one incarnation of a producer."""

    producer_id: int
    producer_epoch: int


class Transaction(NamedTuple):
    """A transactional id after one record of the log. `client_version` is the transaction version that the client of
    the last transaction has. A producer id whose epochs are exhausted has its successor in `next_producer_id` while
    markers are written, and is the `previous_producer_id` after that."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    update_ms: int
    start_ms: int = NO_TIMESTAMP
    partitions: PartitionSet = NO_PARTITIONS
    client_version: int = 0
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID

    @property
    def identity(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def exhausted(self) -> bool:
        """Whether the producer id has no further epoch for a client."""
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    @property
    def commits(self) -> bool:
        """Whether the decision was to commit."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def identity_of_next(self) -> ProducerIdAndEpoch:
        """The id and epoch of the producer once this transaction, which ends in the new protocol, is complete."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.identity
        return ProducerIdAndEpoch(self.next_producer_id, 0)

    @classmethod
    def new(cls, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
        return cls(producer_id, 0, timeout_ms, TransactionState.EMPTY, now_ms)

    def initialised(
        self, identity: ProducerIdAndEpoch, timeout_ms: int, transaction_version: int, now_ms: int
    ) -> Transaction:
        """A producer begins anew as `identity`, which may have another producer id. With `transaction_version` 0 the
        log has no field for those that are tagged in its records."""
        tagged = transaction_version > 0
        rotated = identity.producer_id != self.producer_id
        return self._moved(
            TransactionState.EMPTY,
            now_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            timeout_ms=timeout_ms,
            partitions=NO_PARTITIONS,
            start_ms=NO_TIMESTAMP,
            client_version=self.client_version if tagged else 0,
            previous_producer_id=self.producer_id if tagged and rotated else NO_PRODUCER_ID,
        )

    def with_partitions(self, added: Collection[TopicPartition], client_version: int, now_ms: int) -> Transaction:
        return self._moved(
            TransactionState.ONGOING,
            now_ms,
            partitions=self.partitions.union(added),
            start_ms=now_ms if self.state in IDLE else self.start_ms,
            client_version=client_version,
        )

    def decided(self, *, commit: bool, client_version: int, next_producer_id: int, now_ms: int) -> Transaction:
        """The outcome, with a new epoch in the new protocol. An abort without any partition begins now, too."""
        bumped = client_version >= EPOCH_PER_TRANSACTION
        return self._moved(
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            now_ms,
            producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH) if bumped else self.producer_epoch,
            next_producer_id=next_producer_id,
            start_ms=now_ms if self.state in IDLE else self.start_ms,
            partitions=NO_PARTITIONS if self.state in IDLE else self.partitions,
            client_version=client_version,
        )

    def fenced(self, now_ms: int) -> Transaction:
        """The abort, in the old protocol, of a producer that must not continue: markers have the next epoch."""
        epoch = min(self.producer_epoch + 1, MAX_EPOCH)
        return self._moved(TransactionState.PREPARE_ABORT, now_ms, producer_epoch=epoch, client_version=0)

    def completed(self, now_ms: int) -> Transaction:
        """All markers are written."""
        identity = self.identity_of_next
        rotated = identity.producer_id != self.producer_id
        return self._moved(
            TransactionState.COMPLETE_COMMIT if self.commits else TransactionState.COMPLETE_ABORT,
            now_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            previous_producer_id=self.producer_id if rotated else NO_PRODUCER_ID,
            partitions=NO_PARTITIONS,
        )

    def _moved(
        self,
        state: TransactionState,
        now_ms: int,
        *,
        producer_id: int | None = None,
        producer_epoch: int | None = None,
        timeout_ms: int | None = None,
        start_ms: int | None = None,
        partitions: PartitionSet | None = None,
        client_version: int | None = None,
        previous_producer_id: int = NO_PRODUCER_ID,
        next_producer_id: int = NO_PRODUCER_ID,
    ) -> Transaction:
        if self.state not in PREDECESSORS[state]:
            raise ValueError(f"a transaction in state {self.state} cannot become {state}")
        return Transaction(
            self.producer_id if producer_id is None else producer_id,
            self.producer_epoch if producer_epoch is None else producer_epoch,
            self.timeout_ms if timeout_ms is None else timeout_ms,
            state,
            now_ms,
            self.start_ms if start_ms is None else start_ms,
            self.partitions if partitions is None else partitions,
            self.client_version if client_version is None else client_version,
            previous_producer_id,
            next_producer_id,
        )
