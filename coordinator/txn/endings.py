"""EndTxn, the abort of fenced and overdue transactions, and the way of a decision to all partitions.

The decision is a record, PrepareCommit or PrepareAbort. Once that is committed, the client has its answer and the
markers are sent; when all are written, the record CompleteCommit or CompleteAbort follows. A coordinator that finds a
decision in the log sends the markers again. Behaviour: Kafka's TransactionCoordinator.endTransaction and
TransactionMarkerChannelManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from gregor.coordinator.ports import ShardContext
from gregor.coordinator.result import Record, Result
from gregor.coordinator.txn.config import TransactionConfig
from gregor.coordinator.txn.ports import MarkerSender
from gregor.coordinator.txn.shard_state import ShardState
from gregor.coordinator.txn.states import ANSWERS, PREPARED, Action, Request, TransactionState
from gregor.coordinator.txn.transaction import (
    EPOCH_PER_TRANSACTION,
    LAST_CLIENT_EPOCH,
    MAX_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    Transaction,
)
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import EndTxnRequest, EndTxnResponse
from gregor.protocol.records.control import EndTransaction

_log = logging.getLogger(__name__)

COMPLETION_RETRY_MS = 500
"""The pause before the record that completes a transaction, which could not be appended, is appended again."""

NEEDS_PRODUCER_ID = object()
"""The response of an operation that must be run again with a new producer id. It changed nothing."""


class Endings:
    """Ends the transactions of one shard."""

    def __init__(
        self, config: TransactionConfig, state: ShardState, context: ShardContext, markers: MarkerSender
    ) -> None:
        self._config = config
        self._state = state
        self._context = context
        self._markers = markers

    # --- EndTxn

    def end(self, request: EndTxnRequest, client_version: int, new_id: int | None, now_ms: int) -> Result:
        """Commit or abort for a client; `new_id` is a producer id in case that the epochs of the old are exhausted."""
        transactional_id, commit = request.transactional_id, request.committed
        identity = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        transaction = self._state.transactions.get(transactional_id)
        if transaction is None:
            return _refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        bumps = client_version >= EPOCH_PER_TRANSACTION
        if bumps:
            kind = _kind_in_new_protocol(transaction, identity, commit=commit)
        else:
            kind = _kind_in_old_protocol(transaction, identity, commit=commit)
        if isinstance(kind, ErrorCode):
            return _refusal(kind)
        answer = ANSWERS[kind][transaction.state]
        if isinstance(answer, ErrorCode):
            if answer is ErrorCode.INVALID_TXN_STATE:
                wanted = "commit" if commit else "abort"
                _log.info("%r cannot %s its transaction, which is %s", transactional_id, wanted, transaction.state)
            return _refusal(answer)
        if answer is Action.REPEAT:
            return Result(_success(transaction.identity), confirms_below=self._state.end_offsets[transactional_id])
        next_id = NO_PRODUCER_ID
        if bumps and transaction.exhausted:
            if new_id is None:
                return Result(NEEDS_PRODUCER_ID)
            next_id = new_id
        decided = transaction.decided(
            commit=commit, client_version=client_version, next_producer_id=next_id, now_ms=now_ms
        )
        before = identity if bumps else self._state.identities_before.get(transactional_id)
        return self._decide(transactional_id, decided, before, _success(decided.identity_of_next))

    # --- aborts by the coordinator

    def abort(
        self,
        transactional_id: str,
        transaction_version: int,
        new_id: int | None,
        now_ms: int,
        *,
        response: object = None,
        on_failure: Callable[[], None] | None = None,
    ) -> Result:
        """Abort an open transaction and fence its producer, so that it cannot continue with the same epoch.
        `on_failure` is called if the decision could not be appended."""
        transaction = self._state.transactions[transactional_id]
        if transaction.state is not TransactionState.ONGOING:
            raise ValueError(f"{transactional_id!r} has no open transaction to abort, it is {transaction.state}")
        if transaction_version < EPOCH_PER_TRANSACTION:
            return self._decide(transactional_id, transaction.fenced(now_ms), None, response, on_failure)
        next_id = NO_PRODUCER_ID
        if transaction.exhausted:
            if new_id is None:
                return Result(NEEDS_PRODUCER_ID)
            next_id = new_id
        decided = transaction.decided(
            commit=False, client_version=EPOCH_PER_TRANSACTION, next_producer_id=next_id, now_ms=now_ms
        )
        return self._decide(transactional_id, decided, transaction.identity, response, on_failure)

    def _decide(
        self,
        transactional_id: str,
        decided: Transaction,
        before: ProducerIdAndEpoch | None,
        response: object,
        on_failure: Callable[[], None] | None = None,
    ) -> Result:
        replaced = self._state.identities_before.get(transactional_id)
        self._state.set_identity_before(transactional_id, before)

        def refused(_code: ErrorCode) -> None:
            self._state.set_identity_before(transactional_id, replaced)
            if on_failure is not None:
                on_failure()

        return Result(
            response,
            [Record(transactional_id, decided)],
            on_failure=refused,
            after_commit=partial(self.send_markers, transactional_id, decided),
        )

    # --- markers

    def send_markers(self, transactional_id: str, decided: Transaction) -> None:
        """Have all partitions end the transaction. The decision must be committed."""
        if self._state.transactions.get(transactional_id) is not decided or transactional_id in self._state.markers:
            return
        if not decided.partitions:
            self._context.submit(partial(self._complete, transactional_id, decided))
            return
        marker = EndTransaction(
            decided.producer_id,
            decided.producer_epoch,
            self._context.leader_epoch,
            decided.state is TransactionState.PREPARE_COMMIT,
            decided.client_version,
        )
        written = self._state.markers[transactional_id] = self._markers.send(marker, decided.partitions)
        written.then(partial(self._markers_written, transactional_id, decided))

    def _markers_written(self, transactional_id: str, decided: Transaction, written: Deferred[None]) -> None:
        self._state.markers.pop(transactional_id, None)
        if written.error is None:
            self._context.submit(partial(self._complete, transactional_id, decided))
        elif not written.cancelled:
            _log.warning(
                "the markers of %r (producer id %d, epoch %d, coordinator epoch %d) are refused: %s; "
                "another coordinator must end the transaction",
                *(transactional_id, decided.producer_id, decided.producer_epoch, self._context.leader_epoch),
                written.error,
            )

    def _complete(self, transactional_id: str, decided: Transaction, now_ms: int) -> Result:
        if self._state.transactions.get(transactional_id) is not decided:
            return Result()
        return Result(
            records=[Record(transactional_id, decided.completed(now_ms))],
            on_failure=lambda _code: self._context.timers.schedule(
                ("complete", transactional_id),
                COMPLETION_RETRY_MS,
                partial(self._complete, transactional_id, decided),
            ),
        )

    def close(self) -> None:
        """Markers are sent by the next coordinator."""
        for written in self._state.pop_markers():
            written.cancel()


def _kind_in_old_protocol(
    transaction: Transaction, identity: ProducerIdAndEpoch, *, commit: bool
) -> Request | ErrorCode:
    if identity.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if identity.producer_epoch != transaction.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return Request.COMMIT if commit else Request.ABORT


def _kind_in_new_protocol(
    transaction: Transaction, identity: ProducerIdAndEpoch, *, commit: bool
) -> Request | ErrorCode:
    """The epoch distinguishes the end of the current transaction from a retry of the last one's, which is one below."""
    if transaction.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    rotated = transaction.previous_producer_id == identity.producer_id and (
        identity.producer_epoch == LAST_CLIENT_EPOCH and transaction.producer_epoch == 0
    )
    if identity.producer_id != transaction.producer_id and not rotated:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    bumped = identity.producer_epoch + 1 == transaction.producer_epoch < MAX_EPOCH
    if rotated or bumped:
        return Request.RETRY_COMMIT if commit else Request.RETRY_ABORT
    if identity.producer_epoch != transaction.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return Request.COMMIT_AND_BUMP if commit else Request.ABORT_AND_BUMP


def _success(identity: ProducerIdAndEpoch) -> EndTxnResponse:
    return EndTxnResponse(producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)


def _refusal(error: ErrorCode) -> Result:
    return Result(EndTxnResponse(error_code=error))
