"""Transitions of a transactional id, one by one."""

import pytest

from gregor.coordinator.txn.states import TransactionState
from gregor.coordinator.txn.transaction import (
    LAST_CLIENT_EPOCH,
    MAX_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ProducerIdAndEpoch,
    Transaction,
)
from tests.coordinator.txn.context import partitions

NEW = Transaction.new(7, 60_000, 100)
ONGOING = NEW.with_partitions(partitions(1), 0, 200)


def decided(transaction: Transaction, *, commit: bool = True, version: int = 2, next_id: int = -1) -> Transaction:
    return transaction.decided(commit=commit, client_version=version, next_producer_id=next_id, now_ms=300)


def test_a_transaction_begins_with_its_first_partition() -> None:
    assert (NEW.state, NEW.start_ms) == (TransactionState.EMPTY, NO_TIMESTAMP)
    assert (ONGOING.state, ONGOING.start_ms) == (TransactionState.ONGOING, 200)
    more = ONGOING.with_partitions(partitions(2), 0, 250)
    assert (more.start_ms, more.update_ms, more.partitions) == (200, 250, frozenset(partitions(1, 2)))


def test_the_old_protocol_keeps_the_epoch() -> None:
    committed = decided(ONGOING, version=0).completed(400)
    assert committed.state is TransactionState.COMPLETE_COMMIT
    assert committed.identity == NEW.identity
    assert (committed.partitions, committed.start_ms, committed.update_ms) == (frozenset(), 200, 400)


def test_the_new_protocol_bumps_the_epoch_with_the_decision() -> None:
    prepared = decided(ONGOING)
    assert prepared.identity == ProducerIdAndEpoch(7, 1)
    assert prepared.completed(400).identity == prepared.identity_of_next == ProducerIdAndEpoch(7, 1)


def test_exhausted_epochs_lead_to_the_next_producer_id_once_markers_are_written() -> None:
    last = ONGOING._replace(producer_epoch=LAST_CLIENT_EPOCH)
    assert last.exhausted and not last._replace(producer_epoch=LAST_CLIENT_EPOCH - 1).exhausted
    prepared = decided(last, next_id=8)
    assert prepared.identity == ProducerIdAndEpoch(7, MAX_EPOCH)
    assert prepared.identity_of_next == ProducerIdAndEpoch(8, 0)
    complete = prepared.completed(400)
    assert complete.identity == ProducerIdAndEpoch(8, 0)
    assert (complete.previous_producer_id, complete.next_producer_id) == (7, NO_PRODUCER_ID)
    assert complete.with_partitions(partitions(1), 2, 500).previous_producer_id == NO_PRODUCER_ID


def test_an_abort_without_partitions_begins_with_itself() -> None:
    aborted = decided(NEW, commit=False)
    assert (aborted.state, aborted.start_ms, aborted.partitions) == (TransactionState.PREPARE_ABORT, 300, frozenset())


def test_fencing_takes_the_epoch_that_clients_never_have() -> None:
    fenced = ONGOING._replace(producer_epoch=LAST_CLIENT_EPOCH).fenced(300)
    assert fenced.producer_epoch == MAX_EPOCH
    assert fenced.completed(400).identity == ProducerIdAndEpoch(7, MAX_EPOCH)


def test_a_new_producer_forgets_the_transaction_before() -> None:
    begun = decided(ONGOING).completed(400).initialised(ProducerIdAndEpoch(7, 2), 5_000, 2, 500)
    assert begun == Transaction(7, 2, 5_000, TransactionState.EMPTY, 500, client_version=2)


@pytest.mark.parametrize("transaction", [NEW, decided(ONGOING), decided(ONGOING).completed(400)])
def test_illegal_transitions_are_refused(transaction: Transaction) -> None:
    with pytest.raises(ValueError, match="cannot become PrepareCommit"):
        decided(transaction)
