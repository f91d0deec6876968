"""The transactional ids of one partition of `__transaction_state`: a state machine that is fed with records.

`replay` is the only place where hard state changes, for live traffic, after a restart and after a change of leader
alike. Operations read hard and soft state and return a Result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

from gregor.coordinator.ports import ShardContext
from gregor.coordinator.result import Record, Result
from gregor.coordinator.txn.config import TransactionConfig
from gregor.coordinator.txn.endings import NEEDS_PRODUCER_ID, Endings
from gregor.coordinator.txn.ports import MarkerSender, ProducerIds
from gregor.coordinator.txn.producers import Producers
from gregor.coordinator.txn.queries import Queries
from gregor.coordinator.txn.shard_state import ShardState
from gregor.coordinator.txn.states import IDLE, PREPARED, TransactionState
from gregor.coordinator.txn.transaction import EPOCH_PER_TRANSACTION, NO_PRODUCER_ID, Transaction
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.turns import ITEMS_PER_STEP, Steps

_log = logging.getLogger(__name__)

IDS_PER_EXPIRATION_STEP = 500
"""An operation cannot be interrupted before its records are written; one for so many ids lasts a millisecond."""

_EXPIRATION_KEY = ("expiration",)


class TransactionShard:
    """Hard and soft state (`state`) of one partition, and the operations on it."""

    def __init__(
        self,
        config: TransactionConfig,
        context: ShardContext,
        markers: MarkerSender,
        producer_ids: ProducerIds,
        transaction_version: Callable[[], int],
    ) -> None:
        self._config = config
        self._context = context
        self._producer_ids = producer_ids
        self._transaction_version = transaction_version
        self._loaded = False
        self._end_offset = 0
        self.state = ShardState()
        self.endings = Endings(config, self.state, context, markers)
        self.producers = Producers(config, self.state, context, self.endings, transaction_version)
        self.queries = Queries(self.state)

    # --- hard state

    def replay(self, record: Record, offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply one record that is in the log at `offset`."""
        transactional_id: str = record.key
        transaction: Transaction | None = record.value
        self._end_offset = offset + 1
        if transaction is None:
            self.state.transactions.pop(transactional_id, None)
            self.state.end_offsets.pop(transactional_id, None)
            self.state.set_identity_before(transactional_id, None)
            self._context.timers.cancel(_timeout_key(transactional_id))
            return
        begins = transaction.state is TransactionState.ONGOING and (
            self.state.state_of(transactional_id) is not TransactionState.ONGOING
        )
        self.state.transactions[transactional_id] = transaction
        self.state.end_offsets[transactional_id] = offset + 1
        if transaction.state in IDLE:
            for ended in self.state.waiting_for_end.pop(transactional_id, ()):
                ended.complete(None)
        if begins and self._loaded:
            # The end of the transaction leaves the timer armed: the next one only moves it.
            self._schedule_timeout(transactional_id, transaction.timeout_ms)

    def replay_end_of_transaction(self, producer_id: int, *, commit: bool) -> None:
        """The records of this topic are in no transaction."""

    # --- life of the shard

    def on_loaded(self, now_ms: int) -> Steps[None]:
        """Everything in the log has been replayed: timers run again, and decisions are carried out that the coordinator
        before may not have.

        Markers wait until the decisions are committed: a record above the high watermark may yet be lost, and the
        decision after it be another one.
        """
        self._loaded = True
        prepared: list[str] = []
        for number, (transactional_id, transaction) in enumerate(self.state.transactions.items(), 1):
            if not number % ITEMS_PER_STEP:
                yield None
            if transaction.state is TransactionState.ONGOING:
                self._schedule_timeout(transactional_id, self._time_left_ms(transaction, now_ms))
                if transaction.client_version >= EPOCH_PER_TRANSACTION:
                    # The level is read when that runs: it may fall during the load.
                    self._context.submit(partial(self._abort_after_downgrade, transactional_id))
            elif transaction.state in PREPARED:
                prepared.append(transactional_id)
        for first in range(0, len(prepared), ITEMS_PER_STEP):
            some = prepared[first : first + ITEMS_PER_STEP]
            self._context.submit(partial(self._resume_markers, some))
            yield None
        self._schedule_expiration()

    def _resume_markers(self, transactional_ids: list[str], now_ms: int) -> Result:
        return Result(after_commit=partial(self.carry_out_decisions, transactional_ids))

    def carry_out_decisions(self, transactional_ids: list[str]) -> None:
        for transactional_id in transactional_ids:
            transaction = self.state.transactions.get(transactional_id)
            if transaction is not None and transaction.state in PREPARED:
                self.endings.send_markers(transactional_id, transaction)

    def on_unloaded(self, error: ErrorCode) -> None:
        """Another broker sends the markers now."""
        self.endings.close()
        for waiting in self.state.waiting_for_end.values():
            for ended in waiting:
                ended.fail(KafkaError(error))

    # --- downgrade

    def end_new_protocol(self, transactional_id: str, new_id: int | None, now_ms: int) -> Result:
        """Abort the transaction if it is one of the new protocol; answered once it has ended, which is not committed
        then."""
        transaction = self.state.transactions.get(transactional_id)
        if transaction is None or transaction.state in IDLE or transaction.client_version < EPOCH_PER_TRANSACTION:
            return Result()
        if transaction.state in PREPARED:
            return Result(self._end_of(transactional_id))
        result = self.endings.abort(transactional_id, EPOCH_PER_TRANSACTION, new_id, now_ms)
        if result.response is NEEDS_PRODUCER_ID:
            return result
        return result.answer_instead(self._end_of(transactional_id))

    def _end_of(self, transactional_id: str) -> Deferred[None]:
        ended = self.state.end_of(transactional_id)

        def decided(_: Deferred[None]) -> None:
            if ended.cancelled:
                self.state.forget_end_of(transactional_id, ended)

        ended.then(decided)
        return ended

    def confirm_ends(self) -> Result:
        """Answered once all records that are in the log now are committed, those that were loaded too."""
        return Result(True, confirms_below=self._end_offset)

    def _abort_after_downgrade(self, transactional_id: str, now_ms: int) -> Result:
        """Abort a transaction of the new protocol that was loaded at a lower level, in the old protocol, so that every
        coordinator can complete it."""
        transaction = self.state.transactions.get(transactional_id)
        level = self._transaction_version()
        if (
            transaction is None
            or transaction.state is not TransactionState.ONGOING
            or transaction.client_version < EPOCH_PER_TRANSACTION
            or level >= EPOCH_PER_TRANSACTION
        ):
            return Result()
        return self.endings.abort(
            transactional_id,
            level,
            None,
            now_ms,
            on_failure=lambda: self._context.timers.schedule(
                ("downgrade", transactional_id),
                self._config.abort_retry_ms,
                partial(self._abort_after_downgrade, transactional_id),
            ),
        )

    # --- timeouts

    def _schedule_timeout(self, transactional_id: str, delay_ms: int) -> None:
        self._context.timers.schedule(
            _timeout_key(transactional_id), delay_ms, partial(self._check_timeout, transactional_id)
        )

    def _time_left_ms(self, transaction: Transaction, now_ms: int) -> int:
        """At most the timeout: the wall clock may have been set back."""
        return min(max(transaction.start_ms + transaction.timeout_ms - now_ms, 0), transaction.timeout_ms)

    def _check_timeout(self, transactional_id: str, now_ms: int) -> Result:
        transaction = self.state.transactions.get(transactional_id)
        if transaction is None or transaction.state is not TransactionState.ONGOING:
            return Result()
        # The timer runs from the begin of the transaction, or for the rest of its time, by a clock that does not jump.
        return self._abort_overdue(transactional_id, transaction, None, now_ms)

    def _abort_overdue(
        self, transactional_id: str, transaction: Transaction, new_id: int | None, now_ms: int
    ) -> Result:
        current = self.state.transactions.get(transactional_id)
        if current is not transaction:
            # It has more partitions by now; or it is another one, which has set the timer anew.
            if current is None or current.identity != transaction.identity or current.start_ms != transaction.start_ms:
                return Result()
            return self._check_timeout(transactional_id, now_ms)
        result = self.endings.abort(
            transactional_id,
            self._transaction_version(),
            new_id,
            now_ms,
            on_failure=lambda: self._schedule_timeout(transactional_id, self._config.abort_retry_ms),
        )
        if result.response is NEEDS_PRODUCER_ID:
            # The epochs of the producer id are exhausted, which happens once in 32766 transactions.
            outcome = self._context.outcome_of(self._producer_ids())
            outcome.then(partial(self._abort_with_new_id, transactional_id, transaction))
            return Result()
        _log.info(
            "the transaction of %r (producer id %d, epoch %d) is aborted: it was open for longer than %d ms",
            *(transactional_id, transaction.producer_id, transaction.producer_epoch, transaction.timeout_ms),
        )
        return result

    def _abort_with_new_id(self, transactional_id: str, transaction: Transaction, outcome: Deferred[int]) -> None:
        if outcome.cancelled:
            return
        if outcome.error is not None:
            _log.warning("no producer id to abort the transaction of %r with: %s", transactional_id, outcome.error)
            self._schedule_timeout(transactional_id, self._config.abort_retry_ms)
            return
        new_id = outcome.result()
        self._context.submit(lambda now_ms: self._abort_overdue(transactional_id, transaction, new_id, now_ms))

    # --- expiration of transactional ids

    def _schedule_expiration(self) -> None:
        self._context.timers.schedule(_EXPIRATION_KEY, self._config.expiration_interval_ms, self._begin_expiration)

    def _begin_expiration(self, now_ms: int) -> Result:
        return self._expiration_step(iter(self.queries.transactional_ids()), now_ms)

    def _expiration_step(self, transactional_ids: Iterator[str], now_ms: int) -> Result:
        """Expire some transactional ids, and the rest after other operations had their turn."""
        records: list[Record] = []
        for _ in range(IDS_PER_EXPIRATION_STEP):
            transactional_id = next(transactional_ids, None)
            if transactional_id is None:
                self._schedule_expiration()
                break
            transaction = self.state.transactions.get(transactional_id)
            if transaction is not None and self._expired(transaction, now_ms):
                records.append(Record(transactional_id, None))
        else:
            self._context.timers.schedule(
                _EXPIRATION_KEY, 0, lambda later_ms: self._expiration_step(transactional_ids, later_ms)
            )
        if records:
            _log.info("%d transactional ids have expired", len(records))
        return Result(records=records, atomic=False)

    def _expired(self, transaction: Transaction, now_ms: int) -> bool:
        return transaction.state in IDLE and transaction.update_ms <= now_ms - self._config.expiration_ms


def _timeout_key(transactional_id: str) -> tuple[str, str]:
    return ("timeout", transactional_id)
