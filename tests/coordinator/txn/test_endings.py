"""EndTxn in both protocols, markers, and the completion of transactions."""

import logging

import pytest

from gregor.coordinator.txn.endings import COMPLETION_RETRY_MS
from gregor.coordinator.txn.states import TransactionState
from gregor.coordinator.txn.transaction import LAST_CLIENT_EPOCH, MAX_EPOCH
from gregor.protocol.errors import ErrorCode
from tests.coordinator.txn.context import FIRST_PRODUCER_ID, Context, partitions

OUTCOMES = pytest.mark.parametrize("commit", [True, False])
BOTH = pytest.mark.parametrize("transaction_version", [0, 2])


def ongoing(context: Context, *numbers: int, version: int = 5) -> tuple[int, int]:
    """A producer with an open transaction."""
    producer = context.init()
    assert context.add(*producer, *(numbers or (1,)), version=version) is ErrorCode.NONE
    return producer


def outcome(*, commit: bool) -> list[TransactionState]:
    if commit:
        return [TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT]
    return [TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT]


# --- the old protocol


@OUTCOMES
@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_a_client_of_the_old_protocol_keeps_its_epoch(version: int, commit: bool) -> None:
    with Context() as context:
        producer = ongoing(context, 1, 2, version=3)
        assert context.end(*producer, commit=commit, version=version) == producer
        (sent,) = context.markers.sent
        assert sent.marker == (*producer, 3, commit, 0)
        assert sent.partitions == set(partitions(1, 2))
        assert context.states_written()[-2:] == outcome(commit=commit)
        assert context.transaction().partitions == frozenset()
        assert context.add(*producer, 1, version=3) is ErrorCode.NONE


@OUTCOMES
def test_an_end_in_the_old_protocol_can_be_repeated_but_not_turned(commit: bool) -> None:
    with Context() as context:
        producer = ongoing(context, version=3)
        context.end(*producer, commit=commit, version=4)
        appends = context.log.appends
        context.end(*producer, commit=commit, version=4)
        assert context.start_end(*producer, commit=not commit, version=4).error is ErrorCode.INVALID_TXN_STATE
        assert context.log.appends == appends


@OUTCOMES
def test_coordinator_that_may_have_been_replaced_confirms_no_end(commit: bool) -> None:
    """The transaction that ended here may not be the last one: another coordinator may have the next one."""
    with Context() as context:
        producer = ongoing(context, version=3)
        context.end(*producer, commit=commit, version=4)
        context.log.outdated = True
        assert context.start_end(*producer, commit=commit, version=4).error is ErrorCode.NOT_COORDINATOR
        context.log.outdated = False
        context.end(*producer, commit=commit, version=4)


@OUTCOMES
def test_without_a_transaction_the_old_protocol_ends_none(commit: bool) -> None:
    with Context() as context:
        producer = context.init()
        assert context.start_end(*producer, commit=commit, version=4).error is ErrorCode.INVALID_TXN_STATE


@OUTCOMES
def test_the_old_protocol_waits_for_markers(commit: bool) -> None:
    with Context() as context:
        producer = ongoing(context, version=3)
        context.markers.hold()
        context.end(*producer, commit=commit, version=4)
        for again in (commit, not commit):
            error = context.start_end(*producer, commit=again, version=4).error
            assert error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert context.start_end(producer[0], 9, version=4).error is ErrorCode.PRODUCER_FENCED
        context.markers.write()
        assert context.state() is outcome(commit=commit)[1]
        assert len(context.markers.sent) == 1


@BOTH
def test_ends_of_others_are_refused(transaction_version: int) -> None:
    with Context(transaction_version=transaction_version) as context:
        producer_id, epoch = ongoing(context)
        unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert context.start_end(producer_id, epoch, transactional_id="other").error is unknown
        assert context.start_end(producer_id + 1, epoch).error is unknown
        assert context.start_end(producer_id, epoch + 1).error is ErrorCode.PRODUCER_FENCED
        assert context.start_end(producer_id, epoch - 1).error is ErrorCode.PRODUCER_FENCED
        assert context.start_end(producer_id, epoch + 1, version=1).error is ErrorCode.INVALID_PRODUCER_EPOCH
        assert context.start_end(producer_id, epoch, transactional_id="").error is ErrorCode.INVALID_REQUEST
        assert context.state() is TransactionState.ONGOING


# --- the new protocol


@OUTCOMES
def test_a_client_of_the_new_protocol_gets_the_next_epoch(commit: bool) -> None:
    with Context() as context:
        producer_id, epoch = ongoing(context, 1, 2)
        assert context.end(producer_id, epoch, commit=commit) == (producer_id, epoch + 1)
        (sent,) = context.markers.sent
        assert sent.marker == (producer_id, epoch + 1, 3, commit, 2)
        assert context.states_written()[-2:] == outcome(commit=commit)
        assert context.add(producer_id, epoch, 1, version=5) is ErrorCode.PRODUCER_FENCED
        assert context.add(producer_id, epoch + 1, 1, version=5) is ErrorCode.NONE


@OUTCOMES
@pytest.mark.parametrize("restarts", [False, True])
def test_an_end_that_is_retried_with_its_epoch_has_the_same_answer(commit: bool, restarts: bool) -> None:
    with Context() as context:
        producer_id, epoch = ongoing(context)
        context.end(producer_id, epoch, commit=commit)
        if restarts:
            context.restart()
        appends = context.log.appends
        assert context.end(producer_id, epoch, commit=commit) == (producer_id, epoch + 1)
        turned = context.start_end(producer_id, epoch, commit=not commit)
        assert turned.error is ErrorCode.INVALID_TXN_STATE
        assert (turned.response.producer_id, turned.response.producer_epoch) == (-1, -1)
        assert context.log.appends == appends


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_without_a_transaction_the_new_protocol_aborts_and_does_not_commit(state: str) -> None:
    """The client may not know whether its first write arrived."""
    with Context() as context:
        producer_id, epoch = context.init()
        if state != "Empty":
            context.add(producer_id, epoch, 1, version=5)
            producer_id, epoch = context.end(producer_id, epoch, commit=state == "CompleteCommit")
        assert context.state() == state
        context.sleep(1_000)
        assert context.start_end(producer_id, epoch, commit=True).error is ErrorCode.INVALID_TXN_STATE
        markers = len(context.markers.sent)
        assert context.end(producer_id, epoch, commit=False) == (producer_id, epoch + 1)
        assert len(context.markers.sent) == markers
        assert context.state() is TransactionState.COMPLETE_ABORT
        assert context.transaction().start_ms == context.now_ms()


def test_a_retry_of_the_new_protocol_without_a_transaction_is_fenced() -> None:
    with Context() as context:
        context.init()
        producer_id, epoch = context.init()
        for commit in (True, False):
            assert context.start_end(producer_id, epoch - 1, commit=commit).error is ErrorCode.PRODUCER_FENCED


def test_the_new_protocol_waits_for_markers_whatever_the_epoch() -> None:
    with Context() as context:
        producer_id, epoch = ongoing(context)
        context.markers.hold()
        assert context.end(producer_id, epoch) == (producer_id, epoch + 1)
        for other in (epoch, epoch + 1, epoch + 7):
            assert context.start_end(producer_id, other).error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert context.add(producer_id, epoch + 1, 1, version=5) is ErrorCode.CONCURRENT_TRANSACTIONS
        context.markers.write()
        assert context.add(producer_id, epoch + 1, 1, version=5) is ErrorCode.NONE


@OUTCOMES
@pytest.mark.parametrize("restarts", [False, True])
def test_the_last_epoch_leads_to_a_new_producer_id(commit: bool, restarts: bool) -> None:
    with Context() as context:
        context.init()
        context.write("t", context.transaction()._replace(producer_epoch=LAST_CLIENT_EPOCH))
        context.restart()
        context.add(FIRST_PRODUCER_ID, LAST_CLIENT_EPOCH, 1, version=5)
        context.markers.hold()
        assert context.end(FIRST_PRODUCER_ID, LAST_CLIENT_EPOCH, commit=commit) == (FIRST_PRODUCER_ID + 1, 0)
        assert context.markers.sent[0].marker[:2] == (FIRST_PRODUCER_ID, MAX_EPOCH)
        if restarts:
            context.restart()
            assert context.markers.sent[1].marker[:2] == (FIRST_PRODUCER_ID, MAX_EPOCH)
        context.markers.write()
        context.settle()
        assert context.transaction().identity == (FIRST_PRODUCER_ID + 1, 0)
        # Its retry has the old id.
        assert context.end(FIRST_PRODUCER_ID, LAST_CLIENT_EPOCH, commit=commit) == (FIRST_PRODUCER_ID + 1, 0)
        turned = context.start_end(FIRST_PRODUCER_ID, LAST_CLIENT_EPOCH, commit=not commit)
        assert turned.error is ErrorCode.INVALID_TXN_STATE
        old = context.start_end(FIRST_PRODUCER_ID, LAST_CLIENT_EPOCH - 1)
        assert old.error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_producer_that_did_not_receive_the_answer_may_initialise_with_the_epoch_before() -> None:
    with Context() as context:
        producer_id, epoch = ongoing(context)
        context.end(producer_id, epoch)
        assert context.init("t", producer_id, epoch) == (producer_id, epoch + 1)
        assert context.state() is TransactionState.EMPTY


def test_a_fence_of_the_old_protocol_is_no_retry_of_the_new_one() -> None:
    with Context() as context:
        context.init()
        fenced = context.transaction()._replace(producer_epoch=MAX_EPOCH, state=TransactionState.COMPLETE_ABORT)
        context.write("t", fenced)
        context.restart()
        call = context.start_end(FIRST_PRODUCER_ID, LAST_CLIENT_EPOCH, commit=False)
        assert call.error is ErrorCode.PRODUCER_FENCED


# --- decisions, markers, completion


@BOTH
def test_markers_wait_for_the_commit_of_the_decision(transaction_version: int) -> None:
    with Context(transaction_version=transaction_version) as context:
        producer = ongoing(context)
        context.hold()
        call = context.start_end(*producer)
        assert not call.done and not context.markers.sent
        context.commit()
        assert call.error is ErrorCode.NONE
        assert context.state() is TransactionState.COMPLETE_COMMIT


def test_markers_are_sent_however_late_the_decision_is_committed() -> None:
    with Context(commit_timeout_ms=100) as context:
        producer = ongoing(context)
        context.hold()
        call = context.start_end(*producer)
        context.sleep(1_000)
        assert call.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not context.markers.sent
        context.commit()
        assert len(context.markers.sent) == 1
        assert context.end(*producer) == (producer[0], producer[1] + 1)


def test_the_answer_does_not_wait_for_markers() -> None:
    with Context() as context:
        producer = ongoing(context)
        context.markers.hold()
        assert context.start_end(*producer).done
        assert context.state() is TransactionState.PREPARE_COMMIT


def test_a_decision_that_cannot_be_appended_changes_nothing() -> None:
    with Context() as context:
        producer = ongoing(context)
        context.fail()
        assert context.start_end(*producer).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert context.state() is TransactionState.ONGOING
        assert not context.markers.sent
        assert context.end(*producer, commit=False) == (producer[0], producer[1] + 1)


def test_a_completion_that_cannot_be_appended_is_appended_later() -> None:
    with Context() as context:
        producer = ongoing(context)
        context.markers.hold()
        context.start_end(*producer)
        context.fail()
        context.fail()
        context.markers.write()
        assert context.state() is TransactionState.PREPARE_COMMIT
        context.sleep(COMPLETION_RETRY_MS)
        assert context.state() is TransactionState.PREPARE_COMMIT
        context.sleep(COMPLETION_RETRY_MS)
        assert context.state() is TransactionState.COMPLETE_COMMIT
        assert len(context.markers.sent) == 1


def test_refused_markers_end_the_work_of_this_coordinator(caplog: pytest.LogCaptureFixture) -> None:
    with Context() as context, caplog.at_level(logging.WARNING):
        producer = ongoing(context)
        context.markers.hold()
        context.start_end(*producer)
        context.markers.refuse()
        context.sleep(60_000)
        assert context.state() is TransactionState.PREPARE_COMMIT
        assert len(context.markers.sent) == 1
        assert "TRANSACTION_COORDINATOR_FENCED" in caplog.text


@pytest.mark.parametrize("refused", [True, False])
def test_a_newer_leader_epoch_sends_the_markers_again(refused: bool) -> None:
    with Context() as context:
        producer = ongoing(context)
        context.markers.hold()
        context.start_end(*producer)
        if refused:  # by a partition that has a marker of the coordinator in between
            context.markers.refuse()
        context.leader_epoch += 2
        context.elect()
        assert context.markers.sent[0].written.cancelled is not refused
        assert context.markers.sent[1].marker.coordinator_epoch == context.leader_epoch
        context.markers.waiting[:-1] = []
        context.markers.write()
        assert context.state() is TransactionState.COMPLETE_COMMIT


def test_resignation_cancels_markers() -> None:
    with Context() as context:
        producer = ongoing(context)
        context.markers.hold()
        context.start_end(*producer)
        context.resign()
        assert context.markers.sent[0].written.cancelled
        assert context.states_written()[-1] is TransactionState.PREPARE_COMMIT
