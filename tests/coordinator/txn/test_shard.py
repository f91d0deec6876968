"""Life of a shard: decisions of the coordinator before, timeouts, expiration of transactional ids."""

import asyncio

import pytest

from gregor.coordinator.txn.shard import IDS_PER_EXPIRATION_STEP
from gregor.coordinator.txn.states import TransactionState
from gregor.coordinator.txn.transaction import LAST_CLIENT_EPOCH, MAX_EPOCH, Transaction
from gregor.protocol.errors import ErrorCode
from tests.coordinator.machinery import START_MS
from tests.coordinator.txn.context import FIRST_PRODUCER_ID, TIMEOUT_MS, Context, partitions

BOTH = pytest.mark.parametrize("transaction_version", [0, 2])
DAY_MS = 24 * 60 * 60 * 1000


def ongoing(context: Context, transactional_id: str = "t", version: int = 5) -> tuple[int, int]:
    producer = context.init(transactional_id)
    assert context.add(*producer, 1, transactional_id=transactional_id, version=version) is ErrorCode.NONE
    return producer


# --- load


def test_a_load_builds_the_same_state() -> None:
    with Context(partition_count=3) as context:
        for number in range(20):
            name = f"id-{number}"
            producer = ongoing(context, name)
            if number % 3:
                context.end(*producer, transactional_id=name)
        before = {name: context.transaction(name) for name in (f"id-{number}" for number in range(20))}
        context.restart()
        assert {name: context.transaction(name) for name in before} == before


@pytest.mark.parametrize("commit", [True, False])
def test_markers_of_a_decision_are_sent_again_after_a_load(commit: bool) -> None:
    with Context() as context:
        producer = ongoing(context)
        context.markers.hold()
        context.end(*producer, commit=commit)
        context.restart()
        first, second = context.markers.sent
        assert first.written.cancelled
        assert second.marker == first.marker._replace(coordinator_epoch=4)
        assert second.partitions == first.partitions
        assert context.add(*producer, 1) is ErrorCode.CONCURRENT_TRANSACTIONS
        context.markers.write()
        assert context.state() is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)


def test_decisions_of_many_ids_are_carried_out_after_a_load() -> None:
    with Context() as context:
        producers = {f"id-{number}": ongoing(context, f"id-{number}") for number in range(200)}
        context.markers.hold()
        for name, producer in producers.items():
            context.end(*producer, transactional_id=name)
        context.markers.held = False
        context.restart()
        context.sleep(100)
        assert {context.state(name) for name in producers} == {TransactionState.COMPLETE_COMMIT}


def test_a_decision_that_was_loaded_waits_for_its_commit() -> None:
    """Another leader may not have it, and decide otherwise."""
    with Context() as context:
        producer = ongoing(context)
        context.hold()
        context.start_end(*producer)
        context.restart()
        assert not context.markers.sent
        context.log.commit()
        assert len(context.markers.sent) == 1
        context.commit()
        assert context.state() is TransactionState.COMPLETE_COMMIT


def test_a_decision_without_partitions_is_completed_after_a_load() -> None:
    with Context() as context:
        producer = context.init()
        prepared = context.transaction().decided(commit=False, client_version=2, next_producer_id=-1, now_ms=START_MS)
        context.write("t", prepared)
        context.restart()
        assert context.state() is TransactionState.COMPLETE_ABORT
        assert not context.markers.sent
        assert context.transaction().identity == (producer[0], producer[1] + 1)


def test_uncommitted_records_that_are_lost_never_happened() -> None:
    with Context() as context:
        producer = ongoing(context)
        context.hold()
        context.start_end(*producer)
        context.resign()
        context.log.lose_uncommitted()
        context.log.held = False
        context.restart()
        assert context.state() is TransactionState.ONGOING
        assert not context.markers.sent
        assert context.end(*producer, commit=False) == (producer[0], producer[1] + 1)


def test_requests_are_refused_while_the_log_is_loaded() -> None:
    with Context() as context:
        producer = context.init()
        context.resign()
        context.log.load_gate = asyncio.Event()
        context.elect()
        assert context.start_init().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert context.add(*producer, 1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert context.list().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        context.log.load_gate.set()
        context.sleep(1)
        assert context.add(*producer, 1) is ErrorCode.NONE


def test_a_resigned_partition_is_not_served() -> None:
    with Context() as context:
        producer = ongoing(context)
        context.hold()
        call = context.start_end(*producer)
        context.resign()
        assert call.error is ErrorCode.NOT_COORDINATOR
        assert context.add(*producer, 1) is ErrorCode.NOT_COORDINATOR
        assert context.verify(*producer, 1) == [ErrorCode.NOT_COORDINATOR]


# --- downgrade


@pytest.mark.parametrize("level", [0, 1])
def test_a_transaction_of_the_new_protocol_that_is_loaded_at_a_lower_level_is_aborted(level: int) -> None:
    with Context() as context:
        producer_id, epoch = ongoing(context)
        ongoing(context, "old", version=3)
        context.transaction_version = level
        context.restart()
        assert context.state() is TransactionState.COMPLETE_ABORT
        assert context.transaction().client_version == 0
        assert context.markers.sent[0].marker == (producer_id, epoch + 1, 4, False, 0)
        assert context.state("old") is TransactionState.ONGOING
        assert context.end(producer_id, epoch, commit=False, version=5) == (producer_id, epoch + 1)


def test_a_transaction_of_the_new_protocol_is_aborted_if_the_level_falls_during_the_load() -> None:
    with Context() as context:
        ongoing(context)
        context.resign()
        context.log.load_gate = asyncio.Event()
        context.elect()
        context.transaction_version = 1
        context.log.load_gate.set()
        context.sleep(1)
        assert context.state() is TransactionState.COMPLETE_ABORT


def test_a_transaction_of_the_new_protocol_that_is_loaded_at_its_level_stays_open() -> None:
    with Context() as context:
        ongoing(context)
        context.restart()
        assert context.state() is TransactionState.ONGOING


def test_an_abort_after_a_downgrade_that_cannot_be_written_is_tried_again() -> None:
    with Context(abort_retry_ms=2_000) as context:
        ongoing(context)
        context.transaction_version = 1
        context.fail()
        context.restart()
        assert context.state() is TransactionState.ONGOING
        context.sleep(2_010)
        assert context.state() is TransactionState.COMPLETE_ABORT


# --- timeouts


@BOTH
def test_an_overdue_transaction_is_aborted_and_its_producer_fenced(transaction_version: int) -> None:
    with Context(transaction_version=transaction_version) as context:
        producer_id, epoch = ongoing(context, version=3)
        context.sleep(TIMEOUT_MS - 10)
        assert context.add(producer_id, epoch, 2) is ErrorCode.NONE
        context.sleep(20)
        assert context.state() is TransactionState.COMPLETE_ABORT
        (sent,) = context.markers.sent
        assert sent.marker == (producer_id, epoch + 1, 3, False, transaction_version)
        assert sent.partitions == set(partitions(1, 2))
        assert context.add(producer_id, epoch, 1) is ErrorCode.PRODUCER_FENCED
        assert context.start_end(producer_id, epoch, version=4).error is ErrorCode.PRODUCER_FENCED
        if transaction_version:
            # A client of the new protocol learns that its transaction is over.
            assert context.start_end(producer_id, epoch).error is ErrorCode.INVALID_TXN_STATE
            assert context.end(producer_id, epoch, commit=False) == (producer_id, epoch + 1)


def test_the_timeout_counts_from_the_begin_of_each_transaction() -> None:
    with Context() as context:
        producer = ongoing(context)
        for _ in range(4):
            context.sleep(TIMEOUT_MS // 2)
            producer = context.end(*producer)
            context.sleep(TIMEOUT_MS // 4)
            context.add(*producer, 1, version=5)
        assert context.state() is TransactionState.ONGOING
        context.sleep(TIMEOUT_MS - 10)
        assert context.state() is TransactionState.ONGOING
        context.sleep(20)
        assert context.state() is TransactionState.COMPLETE_ABORT


def test_a_shorter_timeout_of_the_next_producer_acts() -> None:
    with Context() as context:
        context.end(*ongoing(context))
        producer = context.init(timeout_ms=1_000)
        context.add(*producer, 1, version=5)
        context.sleep(1_010)
        assert context.state() is TransactionState.COMPLETE_ABORT


@pytest.mark.parametrize("passed_ms", [TIMEOUT_MS // 2, 3 * TIMEOUT_MS])
def test_the_timeout_goes_on_while_no_coordinator_is_there(passed_ms: int) -> None:
    with Context() as context:
        ongoing(context)
        context.resign()
        context.sleep(passed_ms)
        context.restart()
        if passed_ms < TIMEOUT_MS:
            assert context.state() is TransactionState.ONGOING
            context.sleep(TIMEOUT_MS - passed_ms)
        context.sleep(10)
        assert context.state() is TransactionState.COMPLETE_ABORT


def test_an_abort_that_cannot_be_written_is_tried_again() -> None:
    with Context(abort_retry_ms=2_000) as context:
        ongoing(context)
        context.fail()
        context.sleep(TIMEOUT_MS + 10)
        assert context.state() is TransactionState.ONGOING
        context.sleep(2_000)
        assert context.state() is TransactionState.COMPLETE_ABORT


def test_an_overdue_transaction_with_the_last_epoch_leads_to_a_new_producer_id() -> None:
    with Context(abort_retry_ms=2_000) as context:
        context.init()
        context.write("t", context.transaction()._replace(producer_epoch=LAST_CLIENT_EPOCH))
        context.restart()
        context.add(FIRST_PRODUCER_ID, LAST_CLIENT_EPOCH, 1, version=5)
        context.producer_id_errors.append(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        context.sleep(TIMEOUT_MS + 10)
        assert context.state() is TransactionState.ONGOING
        context.sleep(2_010)
        assert context.markers.sent[0].marker[:2] == (FIRST_PRODUCER_ID, MAX_EPOCH)
        assert context.transaction().identity == (FIRST_PRODUCER_ID + 1, 0)
        assert context.end(FIRST_PRODUCER_ID, LAST_CLIENT_EPOCH, commit=False) == (FIRST_PRODUCER_ID + 1, 0)


def test_a_transaction_that_ends_while_its_abort_waits_for_a_producer_id_is_not_aborted() -> None:
    with Context() as context:
        context.init()
        context.write("t", context.transaction()._replace(producer_epoch=LAST_CLIENT_EPOCH))
        context.restart()
        context.add(FIRST_PRODUCER_ID, LAST_CLIENT_EPOCH, 1)
        context.producer_ids_arrive.clear()
        context.sleep(TIMEOUT_MS + 10)
        context.end(FIRST_PRODUCER_ID, LAST_CLIENT_EPOCH, version=4)
        context.producer_ids_arrive.set()
        context.settle()
        assert context.state() is TransactionState.COMPLETE_COMMIT


# --- expiration


def test_idle_transactional_ids_expire() -> None:
    with Context(expiration_ms=DAY_MS, expiration_interval_ms=1_000) as context:
        context.init("empty")
        context.end(*ongoing(context, "ended"), transactional_id="ended")
        context.sleep(DAY_MS - 5_000)
        assert context.state("empty") is TransactionState.EMPTY
        assert context.state("ended") is TransactionState.COMPLETE_COMMIT
        context.init("empty")
        context.sleep(7_000)
        assert context.state("ended") is TransactionState.DEAD
        assert context.state("empty") is TransactionState.EMPTY
        assert context.written()[-1].key == "ended" and context.written()[-1].value is None
        assert context.describe("ended").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert context.init("ended") == (context.next_producer_id - 1, 0)


@pytest.mark.parametrize("ahead_ms", [-DAY_MS, -1, 1, DAY_MS])
def test_the_clock_of_the_coordinator_before_does_not_keep_a_transaction_open(ahead_ms: int) -> None:
    """A coordinator whose clock is ahead has begun it, by its own time, in the future of the next."""
    with Context() as context:
        ongoing(context)
        begun = context.transaction()
        context.write("t", begun._replace(start_ms=begun.start_ms + ahead_ms, update_ms=begun.update_ms + ahead_ms))
        context.restart()
        context.sleep(TIMEOUT_MS + 1)
        assert context.state() is TransactionState.COMPLETE_ABORT


def test_open_transactions_do_not_expire() -> None:
    with Context(expiration_ms=1_000, expiration_interval_ms=100) as context:
        ongoing(context, "open")
        producer = ongoing(context, "prepared")
        context.markers.hold()
        context.end(*producer, transactional_id="prepared")
        context.sleep(30_000)
        assert context.state("open") is TransactionState.ONGOING
        assert context.state("prepared") is TransactionState.PREPARE_COMMIT


def test_many_transactional_ids_expire_in_turns() -> None:
    with Context(expiration_ms=1_000, expiration_interval_ms=500) as context:
        count = 2 * IDS_PER_EXPIRATION_STEP + 1
        for number in range(count):
            context.write(f"id-{number}", Transaction(number, 0, 1_000, TransactionState.EMPTY, START_MS))
        context.restart()
        assert len(context.shard.state.transactions) == count
        context.sleep(1_600)
        assert not context.shard.state.transactions
        assert not context.replayed_state()


def test_an_expiration_that_cannot_be_written_is_tried_at_the_next_interval() -> None:
    with Context(expiration_ms=1_000, expiration_interval_ms=1_500) as context:
        context.init()
        context.fail()
        context.sleep(1_510)
        assert context.state() is TransactionState.EMPTY
        context.sleep(1_510)
        assert context.state() is TransactionState.DEAD
