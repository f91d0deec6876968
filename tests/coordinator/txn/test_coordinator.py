"""The transaction coordinator as handlers see it: partitions, batches of transactions, its end."""

import asyncio

import pytest

from gregor.coordinator.txn.states import TransactionState
from gregor.coordinator.txn.transaction import LAST_CLIENT_EPOCH
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import AddPartitionsToTxnRequest, EndTxnRequest
from tests.coordinator.txn.context import Context, partitions

_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


@pytest.mark.parametrize(
    ("transactional_id", "partition"), [("a", 47), ("my-group", 12), ("console-consumer-51234", 6)]
)
def test_partition_is_that_of_kafka(transactional_id: str, partition: int) -> None:
    with Context(partition_count=50, load=False) as context:
        assert context.coordinator.partition_for(transactional_id) == partition


def test_a_topic_with_other_partitions() -> None:
    with Context(load=False) as context:
        context.coordinator.on_partition_count(7)
        assert context.coordinator.partition_for("a") == 97 % 7


def test_leaders_add_and_verify_partitions_of_many_transactions_at_once() -> None:
    with Context(partition_count=3) as context:
        first, second = context.init("first"), context.init("second")
        context.add(*first, 1, transactional_id="first", version=5)
        request = AddPartitionsToTxnRequest(
            transactions=[
                _Transaction(
                    transactional_id="first",
                    producer_id=first[0],
                    producer_epoch=first[1],
                    verify_only=True,
                    topics=[_Topic(name="topic", partitions=[1, 2]), _Topic(name="other", partitions=[1])],
                ),
                _Transaction(
                    transactional_id="second",
                    producer_id=second[0],
                    producer_epoch=second[1],
                    topics=[_Topic(name="topic", partitions=[1, 2])],
                ),
                _Transaction(
                    transactional_id="third",
                    producer_id=1,
                    producer_epoch=1,
                    topics=[_Topic(name="topic", partitions=[1])],
                ),
            ]
        )
        response = context.call(context.coordinator.add_partitions(request, 5)).response
        assert response.error_code == ErrorCode.NONE
        errors = {
            (result.transactional_id, topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
            for result in response.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        assert errors == {
            ("first", "topic", 1): ErrorCode.NONE,
            ("first", "topic", 2): ErrorCode.TRANSACTION_ABORTABLE,
            ("first", "other", 1): ErrorCode.TRANSACTION_ABORTABLE,
            ("second", "topic", 1): ErrorCode.NONE,
            ("second", "topic", 2): ErrorCode.NONE,
            ("third", "topic", 1): ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        }
        assert context.transaction("second").partitions == set(partitions(1, 2))
        assert context.transaction("first").partitions == set(partitions(1))


def test_transactions_of_a_batch_do_not_wait_for_each_other() -> None:
    with Context() as context:
        producers = {name: context.init(name) for name in ("a", "b")}
        context.hold()
        request = AddPartitionsToTxnRequest(
            transactions=[
                _Transaction(
                    transactional_id=name,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    topics=[_Topic(name="topic", partitions=[1])],
                )
                for name, (producer_id, epoch) in producers.items()
            ]
        )
        call = context.call(context.coordinator.add_partitions(request, 4))
        assert {context.state(name) for name in producers} == {TransactionState.ONGOING}
        assert not call.done
        context.commit()
        assert call.done


def test_a_closed_coordinator_refuses() -> None:
    with Context() as context:
        producer = context.init()
        context.hold()
        waiting = context.start_end(*producer, commit=False)
        context.coordinator.close()
        context.settle()
        assert waiting.error is ErrorCode.NOT_COORDINATOR
        assert context.start_init().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert context.add(*producer, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert context.add(*producer, 1, version=5) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert context.add_offsets(*producer) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert context.start_end(*producer).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert context.coordinator.on_elected(0, 9) is None


def test_a_newer_leader_epoch_is_that_of_the_next_markers() -> None:
    with Context() as context:
        producer = context.init()
        context.add(*producer, 1, version=5)
        context.leader_epoch = 9
        context.elect()
        context.end(*producer)
        assert context.markers.sent[0].marker.coordinator_epoch == 9


def test_an_old_resignation_is_ignored() -> None:
    with Context() as context:
        context.coordinator.on_resigned(0, context.leader_epoch)
        context.init()
        context.coordinator.on_resigned(0, context.leader_epoch + 1)
        assert context.start_init().error is ErrorCode.NOT_COORDINATOR


def test_a_request_that_is_cancelled_leaves_the_state_whole() -> None:
    with Context() as context:
        producer = context.init()
        context.add(*producer, 1, version=5)
        context.hold()
        request = EndTxnRequest(
            transactional_id="t", producer_id=producer[0], producer_epoch=producer[1], committed=True
        )
        task = context.loop.create_task(context.coordinator.end_transaction(request, 5))
        context.settle()
        task.cancel()
        context.commit()
        assert context.state() is TransactionState.COMPLETE_COMMIT


# --- downgrade


def test_before_a_downgrade_open_transactions_of_the_new_protocol_end() -> None:
    with Context(partition_count=3) as context:
        for name, version in (("new", 5), ("old", 3), ("deciding", 5)):
            producer = context.init(name)
            context.add(*producer, 1, transactional_id=name, version=version)
        context.init("idle")
        context.markers.hold()
        context.end(context.transaction("deciding").producer_id, 0, transactional_id="deciding")
        call = context.call(context.coordinator.end_new_protocol())
        assert not call.done
        context.markers.write()
        context.settle()
        assert call.done
        assert context.state("new") is TransactionState.COMPLETE_ABORT
        assert context.state("deciding") is TransactionState.COMPLETE_COMMIT
        assert context.state("old") is TransactionState.ONGOING
        assert context.call(context.coordinator.end_new_protocol()).done


def test_a_transaction_of_the_new_protocol_that_cannot_end_stops_the_downgrade() -> None:
    with Context() as context:
        producer = context.init()
        context.add(*producer, 1, version=5)
        context.fail()
        call = context.call(context.coordinator.end_new_protocol())
        with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
            _ = call.response


def test_transactions_do_not_wait_for_the_end_of_each_other_before_a_downgrade() -> None:
    with Context(partition_count=3) as context:
        names = [f"id-{number}" for number in range(12)]
        for name in names:
            context.add(*context.init(name), 1, transactional_id=name, version=5)
        context.markers.hold()
        call = context.call(context.coordinator.end_new_protocol())
        context.sleep(10)
        assert {context.state(name) for name in names} == {TransactionState.PREPARE_ABORT}
        assert len(context.markers.sent) == len(names) and not call.done
        context.write_markers()
        context.sleep(10)
        assert call.done and call.response is None


def test_transactions_end_before_a_downgrade_although_other_partitions_cannot_end_theirs() -> None:
    with Context(partition_count=3) as context:
        names = [f"id-{number}" for number in range(12)]
        for name in names:
            context.add(*context.init(name), 1, transactional_id=name, version=5)
        loading = context.coordinator.partition_for("id-0")
        context.coordinator.on_resigned(loading)
        context.log.load_gate = asyncio.Event()
        context.start_load(loading)
        call = context.call(context.coordinator.end_new_protocol())
        context.sleep(10)
        with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            _ = call.response
        others = {name for name in names if context.coordinator.partition_for(name) != loading}
        assert others and {context.state(name) for name in others} == {TransactionState.COMPLETE_ABORT}


def test_a_transaction_with_the_last_epoch_ends_before_a_downgrade() -> None:
    with Context() as context:
        producer_id, _ = context.init()
        context.write("t", context.transaction()._replace(producer_epoch=LAST_CLIENT_EPOCH))
        context.restart()
        context.add(producer_id, LAST_CLIENT_EPOCH, 1, version=5)
        call = context.call(context.coordinator.end_new_protocol())
        assert call.done and call.response is None
        assert context.transaction().identity == (context.next_producer_id - 1, 0)


@pytest.mark.parametrize("loaded", [False, True])
def test_an_end_before_a_downgrade_is_reported_once_it_is_committed(loaded: bool) -> None:
    """Another leader may not have the record, and have the transaction open."""
    with Context() as context:
        context.add(*context.init(), 1, version=5)
        context.markers.hold()
        call = context.call(context.coordinator.end_new_protocol())
        context.hold()
        context.write_markers()
        assert context.state() is TransactionState.COMPLETE_ABORT
        if loaded:
            context.restart()
            call = context.call(context.coordinator.end_new_protocol())
        assert not call.done
        context.commit()
        assert call.done and call.response is None


def test_an_end_before_a_downgrade_that_is_not_committed_is_an_error() -> None:
    with Context() as context:
        context.add(*context.init(), 1, version=5)
        context.markers.hold()
        call = context.call(context.coordinator.end_new_protocol())
        context.hold()
        context.write_markers()
        context.sleep(context.config.commit_timeout_ms + 1)
        with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
            _ = call.response


def test_a_downgrade_that_is_cancelled_leaves_no_wait() -> None:
    with Context() as context:
        context.add(*context.init(), 1, version=5)
        context.markers.hold()
        task = context.loop.create_task(context.coordinator.end_new_protocol())
        context.settle()
        assert context.shard.state.waiting_for_end
        task.cancel()
        context.settle()
        assert not context.shard.state.waiting_for_end


def test_a_transaction_that_moves_during_the_downgrade_is_left_to_its_next_coordinator() -> None:
    with Context() as context:
        producer = context.init()
        context.add(*producer, 1, version=5)
        context.markers.hold()
        call = context.call(context.coordinator.end_new_protocol())
        assert not call.done
        context.resign()
        assert call.done and call.response is None


@pytest.mark.parametrize("level", [0, 1])
def test_clients_that_are_connected_continue_with_the_new_protocol_after_a_downgrade(level: int) -> None:
    """Apache Kafka accepts it at level 1; at level 0 it answers UNSUPPORTED_VERSION, and CONCURRENT_TRANSACTIONS to
    later requests of the transactional id."""
    with Context() as context:
        producer_id, epoch = context.init()
        context.add(producer_id, epoch, 1, version=5)
        context.transaction_version = level
        assert context.end(producer_id, epoch, version=5) == (producer_id, epoch + 1)
        assert context.add(producer_id, epoch + 1, 1, version=5) is ErrorCode.NONE, "a transaction begins"
        assert context.end(producer_id, epoch + 1, version=5) == (producer_id, epoch + 2)
        context.restart()
        assert context.transaction().client_version == 2
        assert context.init() == (producer_id, epoch + 3)
        assert context.transaction().client_version == (2 if level else 0), "the older records do not have it"
