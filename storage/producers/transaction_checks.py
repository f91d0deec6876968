"""The rules of transactional batches and markers at a leader. (Kafka's ProducerAppendInfo and UnifiedLog.)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.storage.segment.batches import TRANSACTIONAL_BIT, BatchHeader
from gregor.storage.segment.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from gregor.protocol.records.control import EndMarker, EndTransaction
    from gregor.storage.producers.entry import ProducerEntry
    from gregor.storage.producers.transactions import Transactions
    from gregor.storage.producers.verification import VerificationGuard, Verifications


def check_epoch(entry: ProducerEntry | None, epoch: int) -> None:
    """Raise INVALID_PRODUCER_EPOCH for an epoch that was fenced."""
    if entry is not None and epoch < entry.epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"epoch {epoch} of producer {entry.producer_id} is older than {entry.epoch}, the last one seen",
        )


def check_in_transaction(entry: ProducerEntry, attributes: int) -> None:
    """Raise INVALID_TXN_STATE for a batch that is not transactional while its producer has a transaction open."""
    if entry.transaction_first_offset >= 0 and not attributes & TRANSACTIONAL_BIT:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {entry.producer_id} sent a batch that is not transactional while its transaction from offset"
            f" {entry.transaction_first_offset} is open",
        )


def check_marker(entry: ProducerEntry | None, marker: EndTransaction) -> None:
    """Check whether a marker may be appended. Raises INVALID_PRODUCER_EPOCH, and TRANSACTION_COORDINATOR_FENCED for the
    marker of an earlier coordinator.

    From transaction.version 2 on a marker has a new epoch. One with the epoch of the producer is a repetition, which is
    appended once more if no transaction is open (KAFKA-19999), else it is that of an earlier transaction. (Kafka's
    ProducerAppendInfo.appendEndTxnMarker.)
    """
    if entry is None:
        return
    epoch = marker.producer_epoch
    is_open = entry.transaction_first_offset >= 0
    if epoch < entry.epoch or (epoch == entry.epoch and is_open and marker.transaction_version >= 2):
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"a marker of epoch {epoch} of producer {marker.producer_id}, whose last epoch is {entry.epoch}",
        )
    if marker.coordinator_epoch < entry.coordinator_epoch:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"a marker of coordinator epoch {marker.coordinator_epoch} for producer {marker.producer_id}, where"
            f" {entry.coordinator_epoch} has written one",
        )


def check_verified(
    entry: ProducerEntry | None,
    verifications: Verifications | None,
    batch: tuple[int, int, int],
    guard: VerificationGuard | None,
) -> None:
    """Raise INVALID_TXN_STATE for a transactional batch that neither belongs to an open transaction, nor was verified
    with the guard that is the current one.

    `batch` has producer id, epoch and first sequence. One that may be a repetition passes: ProducerStates.check
    decides. Raises also INVALID_PRODUCER_EPOCH and OUT_OF_ORDER_SEQUENCE_NUMBER. (Kafka's
    UnifiedLog.analyzeAndValidateProducerState.)
    """
    producer_id, epoch, sequence = batch
    if entry is not None and entry.epoch == epoch and entry.has_batch_from(sequence):
        return
    check_epoch(entry, epoch)
    current = None if verifications is None else verifications.current(producer_id)
    is_open = entry is not None and entry.has_open_transaction(epoch)
    if not is_open and (guard is None or guard is not current):
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {producer_id}, epoch {epoch}: the batch is not part of an open transaction",
        )
    if current is not None:
        current.check_sequence(producer_id, sequence, knows_batches=entry is not None and bool(entry.batches))


def aborted_by(
    entry: ProducerEntry | None, transactions: Transactions | None, batch: BatchHeader, marker: EndMarker | None
) -> AbortedTransaction | None:
    """Return the transaction that this control batch aborts, before the batch is replayed; None if it commits one, or
    if no batch of the transaction is in the log."""
    if marker is None or marker.commit or entry is None or transactions is None or entry.transaction_first_offset < 0:
        return None
    stable_offset = transactions.stable_offset_after(entry.producer_id, batch.base_offset)
    return AbortedTransaction(entry.producer_id, entry.transaction_first_offset, batch.base_offset, stable_offset)
