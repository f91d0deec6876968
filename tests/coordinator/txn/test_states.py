"""The tables of states are complete and agree with each other."""

import pytest

from gregor.coordinator.txn.states import (
    ANSWERS,
    IDLE,
    PREDECESSORS,
    PREPARED,
    STATE_OF,
    STATUS,
    Action,
    Request,
    TransactionState,
)
from gregor.protocol.errors import ErrorCode

LIVE = set(TransactionState) - {TransactionState.PREPARE_EPOCH_FENCE}
NEXT = {
    Request.INIT: TransactionState.EMPTY,
    Request.ADD: TransactionState.ONGOING,
    Request.COMMIT: TransactionState.PREPARE_COMMIT,
    Request.ABORT: TransactionState.PREPARE_ABORT,
    Request.COMMIT_AND_BUMP: TransactionState.PREPARE_COMMIT,
    Request.ABORT_AND_BUMP: TransactionState.PREPARE_ABORT,
}


def test_every_request_has_an_answer_in_every_state() -> None:
    assert set(ANSWERS) == set(Request)
    for answers in ANSWERS.values():
        assert set(answers) == LIVE


def test_every_state_has_its_predecessors_and_its_number() -> None:
    assert set(PREDECESSORS) == set(STATUS) == set(TransactionState)
    assert list(STATE_OF) == [0, 1, 2, 3, 4, 5]
    assert all(STATUS[state] == number for number, state in STATE_OF.items())


@pytest.mark.parametrize("request_", NEXT)
def test_what_is_served_is_a_legal_transition(request_: Request) -> None:
    for state, answer in ANSWERS[request_].items():
        if answer is Action.SERVE:
            assert state in PREDECESSORS[NEXT[request_]]


def test_every_request_waits_for_markers() -> None:
    for answers in ANSWERS.values():
        assert {answers[state] for state in PREPARED} == {ErrorCode.CONCURRENT_TRANSACTIONS}


def test_only_decisions_end_a_transaction() -> None:
    ends = {state for state, before in PREDECESSORS.items() if TransactionState.ONGOING in before}
    assert ends == PREPARED | {TransactionState.ONGOING}


def test_a_commit_needs_an_open_transaction() -> None:
    assert PREDECESSORS[TransactionState.PREPARE_COMMIT] == {TransactionState.ONGOING}


def test_nothing_expires_while_a_transaction_is_open() -> None:
    assert PREDECESSORS[TransactionState.DEAD] - {TransactionState.DEAD} == IDLE
