"""The states of a transactional id, as tables: the predecessors of each, and its answer to each request.

`Dead` stands for "there is no such transactional id (any more)": one is born out of it by InitProducerId and returns to
it by tombstone. A transition that is in no table is illegal. Behaviour: Kafka's TransactionState, and the table above
TransactionCoordinator.endTransaction.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto

from gregor.protocol.errors import ErrorCode


class TransactionState(StrEnum):
    """Names as DescribeTransactions and ListTransactions spell them."""

    EMPTY = "Empty"
    """The producer has an epoch and no transaction yet."""
    ONGOING = "Ongoing"
    """Partitions were added."""
    PREPARE_COMMIT = "PrepareCommit"
    """The decision is in the log; markers are being written."""
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    """All markers are written."""
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    """No such transactional id. The log has a tombstone instead of this state."""
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    """A state of Apache Kafka's memory, known here by name only: a producer is fenced and its transaction aborted by
    one record."""


STATUS = {state: number for number, state in enumerate(TransactionState)}
"""The number of a state, in the log and in Apache Kafka's memory."""
STATE_OF = {
    number: state
    for state, number in STATUS.items()
    if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
}
"""The states that the log can have, by number."""

IDLE = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
"""No transaction is open."""
PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})

PREDECESSORS: dict[TransactionState, frozenset[TransactionState]] = {
    # A new or a restarted producer has initialised.
    TransactionState.EMPTY: IDLE | {TransactionState.DEAD},
    # Partitions or a group were added.
    TransactionState.ONGOING: IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    # A client of the new protocol also aborts where it does not know whether a transaction was begun.
    TransactionState.PREPARE_ABORT: IDLE | {TransactionState.ONGOING},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    # The transactional id has expired.
    TransactionState.DEAD: IDLE | {TransactionState.DEAD},
    TransactionState.PREPARE_EPOCH_FENCE: frozenset(),
}


class Request(Enum):
    """The requests about a transactional id, from a producer whose id and epoch are right."""

    INIT = auto()
    ADD = auto()
    """AddPartitionsToTxn and AddOffsetsToTxn."""
    COMMIT = auto()
    """EndTxn of the old protocol: retries come with the same epoch."""
    ABORT = auto()
    COMMIT_AND_BUMP = auto()
    """EndTxn of the new protocol (KIP-890) with the current epoch."""
    ABORT_AND_BUMP = auto()
    RETRY_COMMIT = auto()
    """EndTxn of the new protocol with the epoch, or the exhausted id, before the current one."""
    RETRY_ABORT = auto()


class Action(Enum):
    """The ways to serve a request that is not refused."""

    SERVE = auto()
    """Write the new state."""
    FENCE = auto()
    """Abort the open transaction of the producer before, and let the client retry."""
    REPEAT = auto()
    """The request has been served before: repeat the answer."""


Answer = Action | ErrorCode

_SERVE = Action.SERVE
_REPEAT = Action.REPEAT
_WAIT = ErrorCode.CONCURRENT_TRANSACTIONS
_INVALID = ErrorCode.INVALID_TXN_STATE
_FENCED = ErrorCode.PRODUCER_FENCED
_UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING


def _row(
    empty: Answer, ongoing: Answer, prepared: Answer, committed: Answer, aborted: Answer, dead: Answer
) -> dict[TransactionState, Answer]:
    return {
        TransactionState.EMPTY: empty,
        TransactionState.ONGOING: ongoing,
        TransactionState.PREPARE_COMMIT: prepared,
        TransactionState.PREPARE_ABORT: prepared,
        TransactionState.COMPLETE_COMMIT: committed,
        TransactionState.COMPLETE_ABORT: aborted,
        TransactionState.DEAD: dead,
    }


# While markers are being written every change has to wait, that of a fenced producer of the new protocol too: its id
# may be the next one.
ANSWERS: dict[Request, dict[TransactionState, Answer]] = {
    #                             Empty, Ongoing, Prepare*, CompleteCommit, CompleteAbort, Dead
    Request.INIT: _row(_SERVE, Action.FENCE, _WAIT, _SERVE, _SERVE, _SERVE),
    Request.ADD: _row(_SERVE, _SERVE, _WAIT, _SERVE, _SERVE, _UNKNOWN),
    Request.COMMIT: _row(_INVALID, _SERVE, _WAIT, _REPEAT, _INVALID, _UNKNOWN),
    Request.ABORT: _row(_INVALID, _SERVE, _WAIT, _INVALID, _REPEAT, _UNKNOWN),
    Request.COMMIT_AND_BUMP: _row(_INVALID, _SERVE, _WAIT, _INVALID, _INVALID, _UNKNOWN),
    Request.ABORT_AND_BUMP: _row(_SERVE, _SERVE, _WAIT, _SERVE, _SERVE, _UNKNOWN),
    Request.RETRY_COMMIT: _row(_FENCED, _FENCED, _WAIT, _REPEAT, _INVALID, _UNKNOWN),
    Request.RETRY_ABORT: _row(_FENCED, _FENCED, _WAIT, _INVALID, _REPEAT, _UNKNOWN),
}
