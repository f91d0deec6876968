"""InitProducerId, AddPartitionsToTxn and AddOffsetsToTxn: what a producer does before the end of a transaction.

Behaviour: Kafka's TransactionCoordinator.handleInitProducerId, handleAddPartitionsToTransaction and
handleVerifyPartitionsInTransaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from gregor.coordinator.ports import ShardContext, TimedOperation
from gregor.coordinator.result import Record, Result
from gregor.coordinator.txn.config import TransactionConfig
from gregor.coordinator.txn.endings import NEEDS_PRODUCER_ID, Endings
from gregor.coordinator.txn.shard_state import ShardState
from gregor.coordinator.txn.states import ANSWERS, PREPARED, Action, Request, TransactionState
from gregor.coordinator.txn.transaction import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    Transaction,
)
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from gregor.protocol.topic_partition import TopicPartition

_NO_IDENTITY = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Producers:
    """The producers of one shard."""

    def __init__(
        self,
        config: TransactionConfig,
        state: ShardState,
        context: ShardContext,
        endings: Endings,
        transaction_version: Callable[[], int],
    ) -> None:
        self._config = config
        self._state = state
        self._context = context
        self._endings = endings
        self._transaction_version = transaction_version

    # --- InitProducerId

    def init(self, request: InitProducerIdRequest, new_id: int | None, now_ms: int) -> Result:
        """Give the producer an epoch of its own, which fences those before it. `new_id` is a producer id in case that
        one is needed."""
        transactional_id = request.transactional_id or ""
        offered = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        expected = None if offered == _NO_IDENTITY else offered
        transaction = self._state.transactions.get(transactional_id)
        if transaction is None:
            if new_id is None:
                return Result(NEEDS_PRODUCER_ID)
            created = Transaction.new(new_id, request.transaction_timeout_ms, now_ms)
            return self._initialise(transactional_id, created, None)
        answer = ANSWERS[Request.INIT][transaction.state]
        if isinstance(answer, ErrorCode):
            return _refusal(answer)
        before = self._state.identities_before.get(transactional_id)
        # Stricter than Apache Kafka, which lets a fenced producer abort the open transaction before it is refused.
        if expected is not None and expected not in (transaction.identity, before):
            return _refusal(ErrorCode.PRODUCER_FENCED)
        if answer is Action.FENCE:
            if expected is not None and expected != transaction.identity:
                return _refusal(ErrorCode.PRODUCER_FENCED)
            wait = InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_epoch=-1)
            return self._endings.abort(transactional_id, self._transaction_version(), new_id, now_ms, response=wait)
        if expected is not None and expected != transaction.identity:
            # The retry of a producer that never received its new epoch.
            identity = transaction.identity
        elif not transaction.exhausted:
            identity = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch + 1)
            before = expected
        elif new_id is None:
            return Result(NEEDS_PRODUCER_ID)
        else:
            identity = ProducerIdAndEpoch(new_id, 0)
            before = expected
        initialised = transaction.initialised(
            identity, request.transaction_timeout_ms, self._transaction_version(), now_ms
        )
        return self._initialise(transactional_id, initialised, before)

    def _initialise(self, transactional_id: str, transaction: Transaction, before: ProducerIdAndEpoch | None) -> Result:
        replaced = self._state.identities_before.get(transactional_id)
        self._state.set_identity_before(transactional_id, before)
        return Result(
            InitProducerIdResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch),
            [Record(transactional_id, transaction)],
            on_failure=lambda _code: self._state.set_identity_before(transactional_id, replaced),
        )

    # --- partitions

    def add(
        self,
        transactional_id: str,
        identity: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
        now_ms: int,
        *,
        waits: bool = True,
    ) -> Result:
        """Make partitions a part of the transaction, which the first ones begin. Answers with an ErrorCode.

        If the transaction before is about to end, the answer `waits` for that, but not for long.
        """
        transaction = self._state.transactions.get(transactional_id)
        if waits and transaction is not None and self._is_next(transaction, identity):
            add = partial(self.add, transactional_id, identity, partitions, client_version, waits=False)
            return Result(self._after_end(transactional_id, add))
        # A producer of the new protocol may come with its next id while the markers of the one before are written.
        answer = ANSWERS[Request.ADD][self._state.state_of(transactional_id)]
        if transaction is None or isinstance(answer, ErrorCode):
            return Result(answer)
        error = _identity_error(transaction, identity)
        if error:
            return Result(error)
        if transaction.state is TransactionState.ONGOING and transaction.partitions.issuperset(partitions):
            return Result(ErrorCode.NONE, confirms_below=self._state.end_offsets[transactional_id])
        added = transaction.with_partitions(partitions, client_version, now_ms)
        return Result(ErrorCode.NONE, [Record(transactional_id, added)])

    def _is_next(self, transaction: Transaction, identity: ProducerIdAndEpoch) -> bool:
        return (
            transaction.state in PREPARED and identity == transaction.identity_of_next and self._config.end_wait_ms > 0
        )

    def _after_end(self, transactional_id: str, operation: TimedOperation) -> Deferred[ErrorCode]:
        """Run an operation once the transaction has ended or the wait is over; return its answer."""
        answer: Deferred[ErrorCode] = Deferred()
        ended = self._state.end_of(transactional_id)
        timer = ("add", transactional_id, id(ended))

        def run(now_ms: int) -> Result:
            if answer.done:  # the request was cancelled
                return Result()
            return operation(now_ms).answer_through(answer)

        def wait_is_over(now_ms: int) -> Result:
            self._state.forget_end_of(transactional_id, ended)
            return run(now_ms)

        def decided(_: Deferred[None]) -> None:
            self._context.timers.cancel(timer)
            if ended.error is not None:
                answer.fail(ended.error)
            else:
                self._context.submit(run)

        self._context.timers.schedule(timer, self._config.end_wait_ms, wait_is_over)
        ended.then(decided)
        return answer

    def verify(
        self, transactional_id: str, identity: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> Result:
        """Answer for each partition whether it is a part of the transaction, with an ErrorCode."""
        errors = self._verified(transactional_id, identity, partitions)
        return Result(errors, confirms_below=self._state.end_offsets.get(transactional_id, 0))

    def _verified(
        self, transactional_id: str, identity: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        transaction = self._state.transactions.get(transactional_id)
        error = ErrorCode.INVALID_PRODUCER_ID_MAPPING if transaction is None else _identity_error(transaction, identity)
        if transaction is None or error:
            return dict.fromkeys(partitions, error)
        if transaction.state in PREPARED:
            return dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
        return {
            partition: ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }


def _identity_error(transaction: Transaction, identity: ProducerIdAndEpoch) -> ErrorCode:
    if identity.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if identity.producer_epoch != transaction.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def _refusal(error: ErrorCode) -> Result:
    return Result(InitProducerIdResponse(error_code=error, producer_epoch=NO_PRODUCER_EPOCH))
