"""The result of an operation of a coordinator.

An operation never changes hard state: its result has the records that would, and the response for the time when they
are committed. The runtime appends the records, replays them (that is the change) and completes the responses at commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.control import EndTransaction


class Record(NamedTuple):
    """One change of hard state, as messages of the internal topic; `value` None is a tombstone."""

    key: Any
    value: Any


class Producer(NamedTuple):
    """The producer whose transaction the records of an append belong to.

    `verified`: the log appends only to a transaction that is open there, or whose present verification is `guard`
    (KIP-890).
    """

    producer_id: int
    producer_epoch: int
    verified: bool = False
    guard: object = None


class WholeBatch(NamedTuple):
    """Records with their bytes, which are valid until the operation of another request. They are no part of a
    transaction."""

    data: bytearray
    records: list[Record]


ALL_RECORDS = -1
"""As `confirms_below`: all records that are in the log."""


@dataclass(slots=True)
class Result:
    """The outcome of one operation.

    `response` is the answer, or the Deferred of it. `releases` are other pending answers and what completes them once
    the records are committed. `on_failure` restores soft state when the records could not be appended; hard state
    did not change. `after_commit` is called when they, and all records before them, are committed: after the answers,
    however late, and not at all once another broker leads the partition. `atomic` False lets the runtime spread the
    records over several batches. With a `producer` the records are part of its transaction. A `marker` ends a
    transaction; it comes without records. `confirms_below`: without records, the response confirms the effect of
    those before this offset, or of ALL_RECORDS. It waits for their commit alone, however long that lasts, where a read
    sees all that was loaded, and all that is there once a wait has timed out. So must an answer from which a member
    learns its generation, its epoch or its assignment.
    """

    response: Any = None
    records: list[Record] = field(default_factory=list)
    releases: list[tuple[Deferred[Any], Any]] = field(default_factory=list)
    on_failure: Callable[[ErrorCode], None] | None = None
    after_commit: Callable[[], None] | None = None
    atomic: bool = True
    producer: Producer | None = None
    marker: EndTransaction | None = None
    confirms_below: int = 0

    def answer_instead(self, response: Any) -> Result:
        """Answer with this in place of the present response, and return the result."""
        self.response = response
        return self

    def answer_through(self, pending: Deferred[Any]) -> Result:
        """Complete an answer that was given before with the response, and return the result, which has none then."""
        self.releases.append((pending, self.response))
        self.response = None
        return self

    def begin_with(self, records: list[Record], on_failure: Callable[[ErrorCode], None] | None = None) -> Result:
        """Write these records before the present ones, and return the result. `on_failure` replaces the present one,
        if it is given."""
        self.records = records + self.records
        self.on_failure = on_failure or self.on_failure
        return self


_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # The verification of a transaction failed; on this error clients retry without another FindCoordinator.
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """An error of the log as clients of a coordinator expect it (Kafka's CoordinatorOperationExceptionHelper)."""
    return _APPEND_ERRORS.get(error, error)


def answered(pending: Deferred[Any], refuse: Callable[[KafkaError], Any]) -> Deferred[Any]:
    """Return the response of an operation: instead of a KafkaError what `refuse` makes of it. A cancellation cancels
    the operation's own."""
    if pending.done and pending.error is None:
        return pending
    answer: Deferred[Any] = Deferred()
    answer.then(lambda _: pending.cancel())
    pending.then(partial(_answer, answer, refuse))
    return answer


def _answer(answer: Deferred[Any], refuse: Callable[[KafkaError], Any], pending: Deferred[Any]) -> None:
    error = pending.error
    if error is None:
        answer.complete(pending.value)
    elif isinstance(error, KafkaError):
        answer.complete(refuse(error))
    else:
        answer.fail(error)
