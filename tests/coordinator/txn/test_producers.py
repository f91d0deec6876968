"""InitProducerId, AddPartitionsToTxn and AddOffsetsToTxn."""

import pytest

from gregor.coordinator.txn.states import TransactionState
from gregor.coordinator.txn.transaction import LAST_CLIENT_EPOCH, MAX_EPOCH
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import AddPartitionsToTxnRequest
from gregor.protocol.topic_partition import TopicPartition
from tests.coordinator.txn.context import FIRST_PRODUCER_ID, TIMEOUT_MS, Context, partitions

BOTH = pytest.mark.parametrize("transaction_version", [0, 2])


def exhaust(context: Context, epoch: int = LAST_CLIENT_EPOCH) -> None:
    """Write a record with which only this epoch is left, as after many transactions."""
    context.write("t", context.transaction()._replace(producer_epoch=epoch))
    context.restart()


# --- InitProducerId


@BOTH
def test_a_new_transactional_id_gets_a_producer_id_and_epoch_0(transaction_version: int) -> None:
    with Context(transaction_version=transaction_version) as context:
        assert context.init() == (FIRST_PRODUCER_ID, 0)
        assert context.state() is TransactionState.EMPTY
        assert context.transaction().timeout_ms == TIMEOUT_MS


@BOTH
def test_a_restarted_producer_gets_the_next_epoch_and_its_timeout(transaction_version: int) -> None:
    with Context(transaction_version=transaction_version) as context:
        context.init()
        assert context.init(timeout_ms=5_000) == (FIRST_PRODUCER_ID, 1)
        assert context.transaction().timeout_ms == 5_000
        context.restart()
        assert context.init() == (FIRST_PRODUCER_ID, 2)


def test_the_answer_waits_for_the_commit() -> None:
    with Context() as context:
        context.hold()
        call = context.start_init()
        assert not call.done
        context.commit()
        assert call.response.producer_epoch == 0


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    with Context() as context:
        assert context.start_init(timeout_ms=timeout_ms).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert context.init(timeout_ms=900_000) == (FIRST_PRODUCER_ID, 0)


def test_an_empty_transactional_id_is_refused() -> None:
    with Context() as context:
        assert context.start_init("").error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("identity", [(5, -1), (-1, 5)])
def test_half_an_identity_is_refused(identity: tuple[int, int]) -> None:
    with Context() as context:
        assert context.start_init("t", *identity).error is ErrorCode.INVALID_REQUEST


def test_the_error_of_the_producer_ids_is_answered() -> None:
    with Context() as context:
        context.producer_id_errors.append(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        response = context.start_init().response
        assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (response.producer_id, response.producer_epoch) == (-1, -1)
        assert context.init() == (FIRST_PRODUCER_ID, 0)


def test_two_producers_that_wait_for_an_id_get_one_each() -> None:
    with Context() as context:
        context.producer_ids_arrive.clear()
        calls = [context.start_init(), context.start_init()]
        assert not any(call.done for call in calls)
        context.producer_ids_arrive.set()
        context.settle()
        assert [(call.response.producer_id, call.response.producer_epoch) for call in calls] == [
            (FIRST_PRODUCER_ID, 0),
            (FIRST_PRODUCER_ID, 1),
        ]


@BOTH
def test_a_producer_requests_a_new_epoch_of_its_id(transaction_version: int) -> None:
    with Context(transaction_version=transaction_version) as context:
        context.init()
        assert context.init("t", FIRST_PRODUCER_ID, 0) == (FIRST_PRODUCER_ID, 1)
        # It never received the answer.
        assert context.init("t", FIRST_PRODUCER_ID, 0) == (FIRST_PRODUCER_ID, 1)
        assert context.init("t", FIRST_PRODUCER_ID, 1) == (FIRST_PRODUCER_ID, 2)
        assert context.start_init("t", FIRST_PRODUCER_ID, 0).error is ErrorCode.PRODUCER_FENCED


@BOTH
def test_a_producer_that_was_fenced_cannot_request_a_new_epoch(transaction_version: int) -> None:
    with Context(transaction_version=transaction_version) as context:
        context.init()
        context.init("t", FIRST_PRODUCER_ID, 0)
        context.init()
        for epoch in (0, 1):
            assert context.start_init("t", FIRST_PRODUCER_ID, epoch).error is ErrorCode.PRODUCER_FENCED
        assert context.start_init("t", 77, 2).error is ErrorCode.PRODUCER_FENCED
        assert context.start_init("t", FIRST_PRODUCER_ID, 0, version=3).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producer_whose_id_has_expired_gets_a_new_one() -> None:
    with Context() as context:
        assert context.init("t", 77, 9) == (FIRST_PRODUCER_ID, 0)


def test_a_failed_append_changes_nothing() -> None:
    with Context() as context:
        context.init()
        context.fail()
        call = context.start_init("t", FIRST_PRODUCER_ID, 0)
        assert call.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert context.init("t", FIRST_PRODUCER_ID, 0) == (FIRST_PRODUCER_ID, 1)


@BOTH
def test_exhausted_epochs_lead_to_a_new_producer_id(transaction_version: int) -> None:
    with Context(transaction_version=transaction_version) as context:
        context.init()
        exhaust(context)
        assert context.init() == (FIRST_PRODUCER_ID + 1, 0)
        assert context.init() == (FIRST_PRODUCER_ID + 1, 1)


def test_a_producer_with_the_last_epoch_may_retry_with_it() -> None:
    with Context() as context:
        context.init()
        exhaust(context)
        last = ("t", FIRST_PRODUCER_ID, LAST_CLIENT_EPOCH)
        assert context.init(*last) == (FIRST_PRODUCER_ID + 1, 0)
        assert context.init(*last) == (FIRST_PRODUCER_ID + 1, 0)
        assert context.start_init("t", FIRST_PRODUCER_ID, 5).error is ErrorCode.PRODUCER_FENCED


def test_an_exhausted_producer_with_another_epoch_is_fenced() -> None:
    with Context() as context:
        context.init()
        exhaust(context)
        assert context.start_init("t", FIRST_PRODUCER_ID, 3).error is ErrorCode.PRODUCER_FENCED


# --- InitProducerId during a transaction


@BOTH
def test_the_transaction_of_the_producer_before_is_aborted_first(transaction_version: int) -> None:
    with Context(transaction_version=transaction_version) as context:
        producer = context.init()
        assert context.add(*producer, 1, 2) is ErrorCode.NONE
        context.markers.hold()
        response = context.start_init().response
        assert response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert (response.producer_id, response.producer_epoch) == (-1, -1)
        (sent,) = context.markers.sent
        assert sent.marker == (FIRST_PRODUCER_ID, 1, 3, False, transaction_version)
        assert sent.partitions == set(partitions(1, 2))
        assert context.start_init().error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert context.add(*producer, 3) is ErrorCode.CONCURRENT_TRANSACTIONS
        context.markers.write()
        assert context.state() is TransactionState.COMPLETE_ABORT
        assert context.init() == (FIRST_PRODUCER_ID, 2)
        assert context.add(*producer, 3) is ErrorCode.PRODUCER_FENCED
        assert context.start_end(*producer).error is ErrorCode.PRODUCER_FENCED


@BOTH
def test_a_fenced_producer_aborts_nothing(transaction_version: int) -> None:
    with Context(transaction_version=transaction_version) as context:
        context.init()
        producer = context.init()
        context.add(*producer, 1)
        assert context.start_init("t", FIRST_PRODUCER_ID, 0).error is ErrorCode.PRODUCER_FENCED
        assert context.state() is TransactionState.ONGOING


def test_fencing_with_the_last_epoch_in_the_old_protocol() -> None:
    with Context(transaction_version=0) as context:
        context.init()
        exhaust(context)
        assert context.add(FIRST_PRODUCER_ID, LAST_CLIENT_EPOCH, 1) is ErrorCode.NONE
        assert context.start_init().error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert context.transaction().producer_epoch == MAX_EPOCH
        assert context.init() == (FIRST_PRODUCER_ID + 1, 0)


def test_fencing_with_the_last_epoch_in_the_new_protocol() -> None:
    with Context() as context:
        context.init()
        exhaust(context)
        assert context.add(FIRST_PRODUCER_ID, LAST_CLIENT_EPOCH, 1, version=5) is ErrorCode.NONE
        assert context.start_init().error is ErrorCode.CONCURRENT_TRANSACTIONS
        (sent,) = context.markers.sent
        assert sent.marker == (FIRST_PRODUCER_ID, MAX_EPOCH, context.leader_epoch, False, 2)
        assert context.transaction().identity == (FIRST_PRODUCER_ID + 1, 0)
        assert context.init() == (FIRST_PRODUCER_ID + 1, 1)


# --- partitions


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 5])
def test_the_first_partitions_begin_a_transaction(version: int) -> None:
    with Context() as context:
        producer = context.init()
        context.sleep(1_000)
        assert context.add(*producer, 1, 2, version=version) is ErrorCode.NONE
        transaction = context.transaction()
        assert transaction.state is TransactionState.ONGOING
        assert transaction.partitions == set(partitions(1, 2))
        assert transaction.start_ms == transaction.update_ms == context.now_ms()
        assert transaction.client_version == (0 if version < 4 else 2)


def test_partitions_that_are_known_are_not_written_again() -> None:
    with Context() as context:
        producer = context.init()
        context.add(*producer, 1, 2)
        appends = context.log.appends
        assert context.add(*producer, 2) is ErrorCode.NONE
        assert context.log.appends == appends
        assert context.add(*producer, 2, 3) is ErrorCode.NONE
        assert context.transaction().partitions == set(partitions(1, 2, 3))


def test_known_partitions_are_confirmed_once_they_are_committed() -> None:
    with Context() as context:
        producer = context.init()
        context.hold()
        first, second = context.start_add(*producer, 1), context.start_add(*producer, 1)
        assert not first.done and not second.done
        context.commit()
        assert first.done and second.done


def test_a_group_is_a_partition_of_the_transaction() -> None:
    with Context() as context:
        producer = context.init()
        assert context.add_offsets(*producer) is ErrorCode.NONE
        assert context.transaction().partitions == {TopicPartition("__consumer_offsets", 7)}
        assert context.add_offsets(producer[0], 9) is ErrorCode.PRODUCER_FENCED
        assert context.add_offsets(producer[0], 9, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert context.add_offsets(*producer, transactional_id="") is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [3, 5])
def test_partitions_of_others_are_refused(version: int) -> None:
    with Context() as context:
        producer_id, epoch = context.init()
        unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert context.add(producer_id, epoch, 1, transactional_id="other", version=version) is unknown
        assert context.add(producer_id + 1, epoch, 1, version=version) is unknown
        assert context.add(producer_id, epoch + 1, 1, version=version) is ErrorCode.PRODUCER_FENCED
        assert context.add(producer_id, epoch - 1, 1, version=version) is ErrorCode.PRODUCER_FENCED
        assert context.add(producer_id, epoch, 1, transactional_id="", version=version) is ErrorCode.INVALID_REQUEST
        assert context.state() is TransactionState.EMPTY


def test_old_clients_know_fencing_by_another_error() -> None:
    with Context() as context:
        producer_id, epoch = context.init()
        assert context.add(producer_id, epoch + 1, 1, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert context.add(producer_id, epoch + 1, 1, version=2) is ErrorCode.PRODUCER_FENCED


def test_the_next_producer_id_has_to_wait_for_the_markers_of_the_one_before() -> None:
    with Context() as context:
        context.init()
        exhaust(context)
        context.add(FIRST_PRODUCER_ID, LAST_CLIENT_EPOCH, 1, version=5)
        context.markers.hold()
        producer = context.end(FIRST_PRODUCER_ID, LAST_CLIENT_EPOCH)
        assert producer == (FIRST_PRODUCER_ID + 1, 0)
        assert context.add(*producer, 1, version=5) is ErrorCode.CONCURRENT_TRANSACTIONS
        context.markers.write()
        assert context.add(*producer, 1, version=5) is ErrorCode.NONE


# --- partitions of the next transaction


@BOTH
def test_partitions_of_the_next_transaction_wait_for_the_end_of_the_one_before(transaction_version: int) -> None:
    with Context(transaction_version=transaction_version, end_wait_ms=20) as context:
        version = 5 if transaction_version else 3
        producer = context.init()
        context.add(*producer, 1, version=version)
        context.markers.hold()
        producer = context.end(*producer)
        first = context.start_add(*producer, 2, version=3)
        second = context.start_add_here(*producer, 3)
        context.sleep(10)
        assert not first.done and not second.done
        context.hold()
        context.write_markers()
        assert context.transaction().partitions == set(partitions(2, 3))
        assert not first.done
        context.commit()
        assert first.done and second.done
        assert context.state() is TransactionState.ONGOING
        context.sleep(100)
        assert context.transaction().partitions == set(partitions(2, 3))


def test_the_wait_for_an_end_is_short() -> None:
    with Context(end_wait_ms=20) as context:
        producer = context.init()
        context.add(*producer, 1, version=5)
        context.markers.hold()
        producer = context.end(*producer)
        waiting = context.start_add_here(*producer, 2)
        assert not waiting.done
        context.sleep(21)
        assert waiting.result() == {partitions(2)[0]: ErrorCode.CONCURRENT_TRANSACTIONS}
        context.markers.write()
        assert context.state() is TransactionState.COMPLETE_COMMIT
        assert not context.shard.state.waiting_for_end


def test_a_transaction_in_a_request_with_others_delays_none_of_them() -> None:
    with Context(end_wait_ms=20) as context:
        producer, other = context.init("t"), context.init("other")
        context.add(*producer, 1, version=5)
        context.markers.hold()
        producer = context.end(*producer)
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                    transactional_id=name,
                    producer_id=identity[0],
                    producer_epoch=identity[1],
                    topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="topic", partitions=[2])],
                )
                for name, identity in (("t", producer), ("other", other))
            ]
        )
        answered = context.call(context.coordinator.add_partitions(request, 5))
        assert answered.done
        errors = {
            result.transactional_id: result.topic_results[0].results_by_partition[0].partition_error_code
            for result in answered.response.results_by_transaction
        }
        assert errors == {"t": ErrorCode.CONCURRENT_TRANSACTIONS, "other": ErrorCode.NONE}
        context.markers.write()
        assert context.add(*producer, 2, version=5) is ErrorCode.NONE


def test_others_do_not_wait_for_an_end() -> None:
    with Context(end_wait_ms=20) as context:
        producer_id, epoch = context.init()
        context.add(producer_id, epoch, 1, version=5)
        context.markers.hold()
        context.end(producer_id, epoch)
        for other in ((producer_id, epoch), (producer_id, epoch + 2), (7, epoch + 1)):
            assert context.add(*other, 2, version=5) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_wait_for_an_end_is_over_with_the_coordinator() -> None:
    with Context(end_wait_ms=20) as context:
        producer = context.init()
        context.add(*producer, 1)
        context.markers.hold()
        context.end(*producer, version=4)
        waiting = context.start_verify  # a verification never waits
        assert waiting(*producer, 1).result() == {partitions(1)[0]: ErrorCode.CONCURRENT_TRANSACTIONS}
        added = context.start_add(*producer, 2)
        assert not added.done
        context.resign()
        (result,) = added.response.results_by_topic_v3_and_below[0].results_by_partition
        assert result.partition_error_code == ErrorCode.NOT_COORDINATOR


def test_verification_says_for_each_partition_whether_it_is_part() -> None:
    with Context() as context:
        producer = context.init()
        assert context.verify(*producer, 1) == [ErrorCode.TRANSACTION_ABORTABLE]
        context.add(*producer, 1, 2)
        assert context.verify(*producer, 1, 3, 2) == [
            ErrorCode.NONE,
            ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.NONE,
        ]
        assert context.verify(producer[0], 1, 1) == [ErrorCode.PRODUCER_FENCED]
        assert context.verify(9, 0, 1) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        assert context.verify(*producer, 1, transactional_id="other") == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        assert context.verify(*producer, 1, transactional_id="") == [ErrorCode.INVALID_REQUEST]
        context.markers.hold()
        context.start_end(*producer, version=4)
        assert context.verify(*producer, 1) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert context.transaction().partitions == set(partitions(1, 2))


def test_verification_waits_for_the_commit_of_what_it_confirms() -> None:
    with Context() as context:
        producer = context.init()
        context.hold()
        context.start_add(*producer, 1)
        outcome = context.start_verify(*producer, 1)
        assert not outcome.done
        context.commit()
        assert outcome.result() == {partitions(1)[0]: ErrorCode.NONE}
