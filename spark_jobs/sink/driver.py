"""The driver's side of the exactly-once sink: each batch is a transaction, which also commits the number of the batch.

For each attempt of a batch:

1. InitProducerId: the attempt before is fenced, and its transaction has ended: it is aborted, or, if its commit was
   decided, committed. From here on its outcome is known.
2. The state is read. If it has this batch, an earlier attempt has committed it: the batch is skipped.
3. The tasks write the rows under the new epoch.
4. The state record is written in the same transaction, which is then committed.

A failure in 3 or in 4 before EndTxn aborts the transaction; after a failure of EndTxn itself the outcome is unknown,
and the next attempt, of this driver or of one that was started after its end, finds it out by 1 and 2.

A run of a query begins by writing itself as the owner of the transactional id, in a transaction of its own. A run that
finds another owner ends: a newer run, of this query or of another, has replaced it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from gregor.protocol.errors import ErrorCode
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.retries import Clock
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.sink.identity import FENCED, ProducerIdentity
from gregor.spark_jobs.sink.options import SinkOptions
from gregor.spark_jobs.sink.producer import Producer
from gregor.spark_jobs.sink.state import BatchState, Owner
from gregor.spark_jobs.sink.state_topic import StateTopic
from gregor.spark_jobs.sink.transactions import Transactions

WriteRows = Callable[[ProducerIdentity], None]

_REPEATED = FENCED | {
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Errors that a transaction does not survive, and a new epoch does."""

_log = logging.getLogger("gregor.spark_jobs")


class AttemptFailed(JobError):
    """An attempt of a batch has failed in a way that another may not."""


class QueryFenced(JobError):
    """A newer run owns the transactional id."""


class BatchDriver:
    """Writes the batches of one run of a query."""

    def __init__(
        self, cluster: Cluster, transactional_id: str, owner: Owner, options: SinkOptions, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._owner = owner
        self._options = options
        self._clock = clock
        self._transactions = Transactions(cluster, transactional_id, options.transaction_timeout_ms)
        self._topic = StateTopic(cluster, options.state_topic, transactional_id.encode())
        self._claimed = False
        self._owned = False  # whether the last stable offset is known to be above the claim

    def write(self, batch_id: int, write_rows: WriteRows) -> bool:
        """Write a batch; return False if it was committed before. Raise JobError if no attempt has succeeded.

        `write_rows` writes all rows of the batch under an identity, and raises AttemptFailed or KafkaFailure if another
        attempt may succeed.
        """
        for attempt in range(1, self._options.max_attempts + 1):
            try:
                self._claim()
                return self._attempt(batch_id, write_rows)
            except (AttemptFailed, KafkaFailure) as failure:
                if not _may_be_repeated(failure) or attempt == self._options.max_attempts:
                    raise JobError(
                        f"batch {batch_id} of {self._transactional_id!r} was not written, after {attempt} of "
                        f"{self._options.max_attempts} attempts: {failure}"
                    ) from failure
                _log.warning(
                    "attempt %d of batch %d of %r has failed, and is repeated: %s",
                    *(attempt, batch_id, self._transactional_id, failure),
                )
                # A newer run that has fenced this one needs a moment to write itself as the owner.
                self._clock.wait_ms(self._cluster.settings.retry_backoff_max_ms)
        raise AssertionError("the last attempt returns or raises")

    def _claim(self) -> None:
        """Become the owner, once in a run."""
        if self._claimed:
            return
        self._topic.prepare()
        identity = self._transactions.begin_epoch()
        state = self._decoded(self._topic.read())
        if state is None or state.owner != self._owner:
            state = BatchState(self._owner) if state is None else state.owned_by(self._owner)
            self._commit(identity, state)
        self._claimed = True

    def _attempt(self, batch_id: int, write_rows: WriteRows) -> bool:
        if self._owned:
            # This run does not fence a newer one that has replaced it.
            self._require_ownership(self._decoded(self._topic.read_stable()))
        identity = self._transactions.begin_epoch()
        state = self._decoded(self._topic.read())
        if state is None:
            raise JobError(
                f"the state of {self._transactional_id!r} is gone from the topic {self._options.state_topic}; it was "
                "deleted. Which batch is committed is not known any more: start with a new checkpoint"
            )
        self._require_ownership(state)
        self._owned = True
        if state.batch_id == batch_id:
            return False
        if state.batch_id > batch_id:
            raise JobError(
                f"the checkpoint is at batch {batch_id}, but {self._transactional_id!r} has committed batch "
                f"{state.batch_id} of the same query: the checkpoint was set back. Rows could be lost or repeated; "
                "start with a new checkpoint"
            )
        started_ms = self._clock.now_ms()
        try:
            self._abort_on_failure(identity, lambda: write_rows(identity))
            self._commit(identity, state.committed(batch_id))
        except KafkaFailure as failure:
            elapsed_ms = self._clock.now_ms() - started_ms
            if failure.code in FENCED and elapsed_ms >= self._options.transaction_timeout_ms:
                raise AttemptFailed(
                    f"the batch needed {elapsed_ms / 1000:.0f} s, more than kafka.transaction.timeout.ms="
                    f"{self._options.transaction_timeout_ms}, and was aborted; raise it, or make batches smaller "
                    f"({failure})"
                ) from failure
            raise
        return True

    def _commit(self, identity: ProducerIdentity, state: BatchState) -> None:
        """Write a state and commit it, with everything else in the transaction."""
        producer = Producer(self._cluster, identity, self._options, self._transactions.add_partitions)

        def write_state() -> None:
            producer.append(self._topic.partition, self._transactional_id.encode(), state.encode())
            producer.flush()

        self._abort_on_failure(identity, write_state)
        self._transactions.end(identity, commit=True)

    def _abort_on_failure(self, identity: ProducerIdentity, step: Callable[[], None]) -> None:
        """Abort after a failure, so that readers need not wait for the next attempt, which would abort as well."""
        try:
            step()
        except Exception:
            try:
                self._transactions.end(identity, commit=False)
            except KafkaFailure as failure:
                _log.info("the transaction of %r is not aborted yet: %s", self._transactional_id, failure)
            raise

    def _require_ownership(self, state: BatchState | None) -> None:
        if state is not None and state.owner != self._owner:
            other = "another run of this query" if state.owner.query_id == self._owner.query_id else "another query"
            raise QueryFenced(
                f"{other} (id {state.owner.query_id}, run {state.owner.run_id}) was started later with the "
                f"transactional id {self._transactional_id!r} and owns it now; this run ends. Give each checkpoint "
                "an id of its own"
            )

    def _decoded(self, value: bytes | None) -> BatchState | None:
        return None if value is None else BatchState.decode(value)


def _may_be_repeated(failure: JobError) -> bool:
    return not isinstance(failure, KafkaFailure) or failure.retriable or failure.code in _REPEATED
