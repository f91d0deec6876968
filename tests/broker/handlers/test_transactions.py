"""Transactions on one broker, from the first request of a producer to the markers in its partitions."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.answers.producer_clients import clients_in
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    MetadataRequest,
    ProduceRequest,
    ProduceResponse,
    UpdateFeaturesRequest,
    WriteTxnMarkersRequest,
)
from gregor.protocol.topic_names import TRANSACTION_STATE_TOPIC
from gregor.protocol.topic_partition import TopicPartition
from tests.broker.harness import Harness, batch, one_partition, running
from tests.support.stolen_time import UndisturbedTime

TRANSACTION = 1
OLD, NEW = 11, 12
"""Versions of Produce: the producer has added the partition before; the broker adds it."""


class Producer:
    """A transactional producer that sends every request itself."""

    def __init__(self, harness: Harness, name: str) -> None:
        self.harness = harness
        self.name = name
        self.sequences: dict[tuple[str, int], int] = {}
        find_coordinator(harness, name)
        self.init()

    def init(self) -> None:
        def ready() -> bool:
            self.answer = self.harness.ask(
                InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000), 4
            )
            return self.answer.error_code not in (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.CONCURRENT_TRANSACTIONS,
            )

        self.harness.until(ready)
        assert self.answer.error_code == 0, self.answer
        self.id, self.epoch = self.answer.producer_id, self.answer.producer_epoch
        self.sequences.clear()

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[ErrorCode]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
            ],
        )

        def ended() -> bool:
            """The end of the transaction before is written."""
            (answer,) = self.harness.ask(request, version).results_by_topic_v3_and_below
            self.errors = [ErrorCode(one.partition_error_code) for one in answer.results_by_partition]
            return ErrorCode.CONCURRENT_TRANSACTIONS not in self.errors

        self.harness.until(ended)
        return self.errors

    def records(self, topic: str, *values: bytes, partition: int = 0, transactional: bool = True) -> bytes:
        sequence = self.sequences.get((topic, partition), 0)
        return batch(
            *values,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=transactional,
        )

    def request(self, topic: str | bytes, *batches: tuple[int, bytes]) -> ProduceRequest:
        wanted = ProduceRequest.TopicProduceData(
            partition_data=[
                ProduceRequest.PartitionProduceData(index=index, records=records) for index, records in batches
            ]
        )
        if isinstance(topic, bytes):
            wanted.topic_id = topic
        else:
            wanted.name = topic
        return ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=5000, topic_data=[wanted])

    def produce(
        self, topic: str, *values: bytes, partition: int = 0, version: int = OLD, topic_id: bytes = b""
    ) -> ProduceResponse.PartitionProduceResponse:
        request = self.request(topic_id or topic, (partition, self.records(topic, *values, partition=partition)))
        answer = one_partition(self.harness.ask(request, version))
        if not answer.error_code:
            self.sequences[topic, partition] = self.sequences.get((topic, partition), 0) + len(values)
        return answer

    def end(self, *, commit: bool = True, version: int = 3) -> ErrorCode:
        answer = self.harness.ask(
            EndTxnRequest(transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=commit),
            version,
        )
        return ErrorCode(answer.error_code)

    def state(self) -> str:
        (answer,) = self.harness.ask(DescribeTransactionsRequest(transactional_ids=[self.name]), 0).transaction_states
        assert answer.error_code == 0
        state: str = answer.transaction_state
        return state

    def until_ended(self) -> None:
        self.harness.until(lambda: self.state().startswith("Complete"))


def find_coordinator(harness: Harness, name: str) -> None:
    answer = harness.ask(FindCoordinatorRequest(key=name, key_type=TRANSACTION), 3)
    assert (answer.error_code, answer.node_id, answer.port) == (0, 0, 9092)


def end_offset(harness: Harness, topic: str, partition: int = 0) -> int:
    replica = harness.broker.replicas.get(topic, partition)
    assert replica is not None
    return replica.log_end_offset


@pytest.fixture
def producer(harness: Harness, topic: str) -> Producer:
    harness.create_topic(topic, 3)
    return Producer(harness, topic)


def test_first_producer_id_of_a_fresh_broker_is_there_within_a_second(tmp_path: Path) -> None:
    with running(tmp_path, transaction_state_log_num_partitions="50") as harness:
        time_needed = UndisturbedTime(os.getpid())
        assert Producer(harness, "first").epoch == 0
        needed_s = time_needed.seconds()
        check_transaction_topic(harness)
    assert needed_s < 1


def check_transaction_topic(harness: Harness) -> None:
    wanted = MetadataRequest.MetadataRequestTopic(name=TRANSACTION_STATE_TOPIC)
    (topic,) = harness.ask(MetadataRequest(topics=[wanted]), 9).topics
    assert topic.is_internal
    assert [one.replica_nodes for one in topic.partitions] == [[0]] * 50
    log = harness.broker.replicas.partitions[TRANSACTION_STATE_TOPIC, 0].log
    assert log is not None and (log.config.cleanup_policy, log.config.min_insync_replicas) == ({"compact"}, 1)


@pytest.mark.parametrize("version", range(6))
def test_each_version_of_init_producer_id_has_transactions(harness: Harness, topic: str, version: int) -> None:
    find_coordinator(harness, topic)
    request = InitProducerIdRequest(transactional_id=topic, transaction_timeout_ms=1000)
    harness.until(lambda: harness.ask(request, version).error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    first, second = harness.ask(request, version), harness.ask(request, version)
    assert first.error_code == second.error_code == 0
    assert first.producer_id == second.producer_id
    assert second.producer_epoch == first.producer_epoch + 1


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [3, 8, OLD, NEW, 13])
def test_transaction_ends_with_a_marker_in_each_of_its_partitions(
    harness: Harness, topic: str, commit: bool, version: int
) -> None:
    topic_id = harness.create_topic(topic, 3) if version >= 13 else harness.create_topic(topic, 3) and b""
    producer = Producer(harness, topic)
    for number in range(3):
        if version < NEW:
            assert producer.add(topic, 0, 1) == [ErrorCode.NONE] * 2
        for partition in (0, 1):
            answer = producer.produce(topic, b"a", b"b", partition=partition, version=version, topic_id=topic_id)
            assert (answer.error_code, answer.base_offset) == (0, 3 * number)
        assert producer.end(commit=commit) == ErrorCode.NONE
        producer.until_ended()
        assert [end_offset(harness, topic, index) for index in range(3)] == [3 * (number + 1)] * 2 + [0]
        replica = harness.broker.replicas.get(topic, 0)
        assert replica is not None
        assert replica.last_stable_offset == 3 * (number + 1)


def test_until_its_end_a_transaction_holds_the_last_stable_offset(producer: Producer, topic: str) -> None:
    replica = producer.harness.broker.replicas.get(topic, 0)
    assert replica is not None
    assert producer.harness.produce(topic, b"plain").error_code == 0
    producer.add(topic, 0)
    producer.produce(topic, b"x")
    assert producer.harness.produce(topic, b"plain").error_code == 0
    assert (replica.last_stable_offset, replica.high_watermark) == (1, 3)
    producer.end()
    producer.until_ended()
    assert (replica.last_stable_offset, replica.high_watermark) == (4, 4)


@pytest.mark.parametrize(
    ("version", "error"), [(8, ErrorCode.INVALID_TXN_STATE), (OLD, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_partition_that_was_not_added_is_refused(
    producer: Producer, topic: str, version: int, error: ErrorCode
) -> None:
    producer.add(topic, 0)
    assert producer.produce(topic, b"x", partition=1, version=version).error_code == error
    assert end_offset(producer.harness, topic, 1) == 0
    assert producer.produce(topic, b"x", version=version).error_code == 0


def test_partitions_are_verified_one_by_one(producer: Producer, topic: str) -> None:
    producer.add(topic, 0, 2)
    request = producer.request(
        topic, *[(index, producer.records(topic, b"x", partition=index)) for index in (0, 1, 2, 7)]
    )
    answers = producer.harness.ask(request, OLD).responses[0].partition_responses
    assert [ErrorCode(answer.error_code) for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [end_offset(producer.harness, topic, index) for index in range(3)] == [1, 0, 1]


def test_without_verification_records_are_appended_all_the_same(producer: Producer, topic: str) -> None:
    with producer.harness.settings(transaction_partition_verification_enable="false"):
        assert producer.produce(topic, b"x").error_code == 0


class SlowVerifier:
    """A coordinator on another broker: the test completes its answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, list[TopicPartition], bool]] = []
        self.answers: list[Deferred[dict[TopicPartition, ErrorCode]]] = []

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        verify_only: bool,
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        self.asked.append((transactional_id, producer_id, producer_epoch, list(partitions), verify_only))
        self.answers.append(Deferred())
        return self.answers[-1]


@pytest.fixture
def slow_verifier(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> SlowVerifier:
    verifier = SlowVerifier()
    monkeypatch.setattr(harness.broker, "transaction_verifier", verifier)
    return verifier


@pytest.mark.parametrize("version", [8, NEW])
def test_connection_is_held_until_the_coordinator_has_answered(
    producer: Producer, topic: str, slow_verifier: SlowVerifier, version: int
) -> None:
    harness, key = producer.harness, TopicPartition(topic, 0)
    task = harness.begin(producer.request(topic, (0, producer.records(topic, b"x"))), version)
    assert harness.connection.held
    assert slow_verifier.asked == [(producer.name, producer.id, producer.epoch, [key], version < NEW)]
    slow_verifier.answers[0].complete({key: ErrorCode.NONE})
    assert one_partition(harness.run(task)).base_offset == 0
    assert not harness.connection.held
    # The transaction is open in the partition: later records need no coordinator.
    producer.sequences[topic, 0] = 1
    assert producer.produce(topic, b"y", version=version).base_offset == 1
    assert len(slow_verifier.asked) == 1


@pytest.mark.parametrize(
    ("answer", "version", "error"),
    [
        (ErrorCode.INVALID_TXN_STATE, 8, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, OLD, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, OLD, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.INVALID_PRODUCER_EPOCH, OLD, ErrorCode.INVALID_PRODUCER_EPOCH),
        *[
            (answer, version, ErrorCode.NOT_ENOUGH_REPLICAS)
            for answer in (
                ErrorCode.NETWORK_EXCEPTION,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.NOT_COORDINATOR,
            )
            for version in (8, NEW)
        ],
    ],
)
def test_errors_of_the_coordinator_are_those_that_producers_can_handle(
    producer: Producer, topic: str, slow_verifier: SlowVerifier, answer: ErrorCode, version: int, error: ErrorCode
) -> None:
    harness = producer.harness
    task = harness.begin(producer.request(topic, (0, producer.records(topic, b"x"))), version)
    slow_verifier.answers[0].complete({TopicPartition(topic, 0): answer})
    assert ErrorCode(one_partition(harness.run(task)).error_code) is error
    assert end_offset(harness, topic) == 0
    # The same batch is appended later, and no other is awaited before it.
    task = harness.begin(producer.request(topic, (0, producer.records(topic, b"x"))), version)
    slow_verifier.answers[1].complete({TopicPartition(topic, 0): ErrorCode.NONE})
    assert one_partition(harness.run(task)).base_offset == 0


def test_partition_is_added_again_while_the_transaction_before_ends(
    producer: Producer, topic: str, slow_verifier: SlowVerifier
) -> None:
    harness, key = producer.harness, TopicPartition(topic, 0)
    with harness.settings(add_partitions_to_txn_retry_backoff_ms="1"):
        task = harness.begin(producer.request(topic, (0, producer.records(topic, b"x"))), NEW)
        slow_verifier.answers[0].complete({key: ErrorCode.CONCURRENT_TRANSACTIONS})
        harness.until(lambda: len(slow_verifier.answers) == 2)
        slow_verifier.answers[1].complete({key: ErrorCode.NONE})
        assert one_partition(harness.run(task)).base_offset == 0


def test_producer_repeats_what_could_not_be_added_in_time(
    producer: Producer, topic: str, slow_verifier: SlowVerifier
) -> None:
    harness = producer.harness
    with harness.settings(add_partitions_to_txn_retry_backoff_max_ms="0"):
        task = harness.begin(producer.request(topic, (0, producer.records(topic, b"x"))), NEW)
        slow_verifier.answers[0].complete({TopicPartition(topic, 0): ErrorCode.CONCURRENT_TRANSACTIONS})
        assert one_partition(harness.run(task)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS


def test_batch_that_arrives_after_the_end_begins_no_transaction(producer: Producer, topic: str) -> None:
    producer.add(topic, 0)
    assert producer.produce(topic, b"x").error_code == 0
    late = producer.request(topic, (0, producer.records(topic, b"late")))
    assert producer.end(commit=False) == ErrorCode.NONE
    producer.until_ended()
    assert one_partition(producer.harness.ask(late, OLD)).error_code == ErrorCode.TRANSACTION_ABORTABLE
    assert end_offset(producer.harness, topic) == 2


@pytest.mark.parametrize("version", [8, NEW])
def test_producer_before_is_fenced(producer: Producer, topic: str, version: int) -> None:
    zombie = Producer.__new__(Producer)
    zombie.__dict__.update(producer.__dict__, sequences={})
    producer.init()
    assert producer.epoch == zombie.epoch + 1
    assert zombie.produce(topic, b"x", version=version).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.end() == ErrorCode.PRODUCER_FENCED
    assert zombie.end(version=1) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_init_aborts_the_transaction_of_the_producer_before(producer: Producer, topic: str) -> None:
    producer.add(topic, 0)
    assert producer.produce(topic, b"x").error_code == 0
    producer.init()
    assert end_offset(producer.harness, topic) == 2
    producer.add(topic, 0)
    assert producer.produce(topic, b"y").base_offset == 2


def test_plain_records_of_a_transactional_producer(producer: Producer, topic: str) -> None:
    request = producer.request(topic, (0, producer.records(topic, b"x", transactional=False)))
    assert one_partition(producer.harness.ask(request, OLD)).error_code == 0
    assert producer.state() == "Empty"


def test_records_of_several_producers_are_refused_as_a_whole(producer: Producer, topic: str) -> None:
    own = producer.records(topic, b"x")
    producer.id += 1
    request = producer.request(topic, (0, own), (1, producer.records(topic, b"x", partition=1)))
    answers = producer.harness.ask(request, OLD).responses[0].partition_responses
    assert {answer.error_code for answer in answers} == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}


@pytest.mark.parametrize("version", [OLD, NEW])
def test_refused_acks_begin_no_transaction(
    producer: Producer, topic: str, slow_verifier: SlowVerifier, version: int
) -> None:
    request = producer.request(topic, (0, producer.records(topic, b"x")))
    request.acks = 2
    assert one_partition(producer.harness.ask(request, version)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert slow_verifier.asked == []


@pytest.mark.parametrize(
    ("client_id", "error", "state"),
    [("tests", ErrorCode.INVALID_TOPIC_EXCEPTION, "Empty"), ("__admin_client", ErrorCode.NONE, "Ongoing")],
)
def test_refused_records_of_an_internal_topic_begin_no_transaction(
    producer: Producer, client_id: str, error: ErrorCode, state: str
) -> None:
    harness, internal = producer.harness, "__consumer_offsets"
    harness.ask(FindCoordinatorRequest(key="g"), 0)
    identity: Any = {"producer_id": producer.id, "producer_epoch": producer.epoch, "base_sequence": 0}
    records = batch((b"\0\x7f", b"v"), transactional=True, **identity)
    request = producer.request(internal, (0, records))
    assert one_partition(harness.ask(request, NEW, client_id)).error_code == error
    assert producer.state() == state
    producer.end(commit=False)


def test_transactional_records_need_a_transactional_id(producer: Producer, topic: str) -> None:
    request = producer.request(topic, (0, producer.records(topic, b"x")))
    request.transactional_id = None
    refusal = one_partition(producer.harness.ask(request, OLD)).error_code
    assert refusal == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_partitions_that_do_not_exist_are_not_added_nor_are_those_beside_them(producer: Producer, topic: str) -> None:
    assert producer.add(topic, 0, 9) == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    wanted = [
        AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=producer.name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[9])],
        )
    ]
    answer = producer.harness.ask(AddPartitionsToTxnRequest(transactions=wanted), 5)
    (result,) = answer.results_by_transaction
    (one,) = result.topic_results[0].results_by_partition
    assert (result.transactional_id, one.partition_error_code) == (
        producer.name,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    assert producer.state() == "Empty"


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_a_group_become_part_of_a_transaction(producer: Producer, topic: str, version: int) -> None:
    harness = producer.harness
    harness.ask(FindCoordinatorRequest(key="g"), 0)
    request = AddOffsetsToTxnRequest(
        transactional_id=producer.name, producer_id=producer.id, producer_epoch=producer.epoch, group_id="g"
    )
    assert harness.ask(request, version).error_code == 0
    (state,) = harness.ask(DescribeTransactionsRequest(transactional_ids=[producer.name]), 0).transaction_states
    assert [one.topic for one in state.topics] == ["__consumer_offsets"]
    assert producer.end() == ErrorCode.NONE
    producer.until_ended()


def marker_request(producer: Producer, topic: str, *indexes: int) -> WriteTxnMarkersRequest:
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        coordinator_epoch=100,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes))],
    )
    return WriteTxnMarkersRequest(markers=[marker])


def write_marker(harness: Harness, producer: Producer, topic: str, version: int, *indexes: int) -> list[ErrorCode]:
    (answer,) = harness.ask(marker_request(producer, topic, *indexes), version).markers
    assert answer.producer_id == producer.id
    return [ErrorCode(one.error_code) for one in answer.topics[0].partitions]


@pytest.mark.parametrize("version", range(3))
def test_hanging_transaction_is_aborted_by_a_marker(producer: Producer, topic: str, version: int) -> None:
    harness = producer.harness
    producer.add(topic, 0)
    producer.produce(topic, b"x")
    assert open_since(harness, topic) == [0]
    assert write_marker(harness, producer, topic, version, 0, 7) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert open_since(harness, topic) == [-1]
    assert end_offset(harness, topic) == 2


def test_marker_of_an_earlier_coordinator_is_refused(producer: Producer, topic: str) -> None:
    producer.add(topic, 0)
    producer.produce(topic, b"x")
    assert write_marker(producer.harness, producer, topic, 1, 0) == [ErrorCode.NONE]
    producer.harness.until(lambda: producer.end(commit=False) == ErrorCode.NONE)
    # The coordinator's own epoch is lower than that of the tool: the partition refuses its marker.
    producer.harness.turn(50)
    assert end_offset(producer.harness, topic) == 2


def test_markers_that_followers_do_not_have_in_time(producer: Producer, topic: str) -> None:
    harness = producer.harness
    producer.add(topic, 0, 1)
    for partition in (0, 1):
        producer.produce(topic, b"x", partition=partition)
    harness.add_follower(topic)
    with harness.settings(request_timeout_ms="20"):
        assert write_marker(harness, producer, topic, 2, 0, 1) == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]
    assert end_offset(harness, topic) == 2


def test_leader_that_resigns_before_the_marker_is_committed(producer: Producer, topic: str) -> None:
    harness = producer.harness
    producer.add(topic, 0)
    producer.produce(topic, b"x")
    harness.add_follower(topic)
    task = harness.begin(marker_request(producer, topic, 0), 2)
    assert not task.done()
    harness.hand_over(topic)
    (answer,) = harness.run(task).markers
    assert [one.error_code for one in answer.topics[0].partitions] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def open_since(harness: Harness, topic: str) -> list[int]:
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])]
    )
    (answer,) = harness.ask(request, 0).topics[0].partitions
    assert answer.error_code == 0
    return [one.current_txn_start_offset for one in answer.active_producers]


def test_client_of_an_open_transaction_is_in_the_details(producer: Producer, topic: str) -> None:
    producer.add(topic, 0)
    producer.produce(topic, b"x")
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])]
    )
    (described,) = producer.harness.ask(request, 0).topics[0].partitions
    (state,) = described.active_producers
    assert clients_in(described.error_message) == {state.producer_id: f"tests at {producer.harness.connection.host}"}
    assert producer.end(commit=True) == ErrorCode.NONE
    producer.harness.until(lambda: open_since(producer.harness, topic) == [-1])
    (described,) = producer.harness.ask(request, 0).topics[0].partitions
    assert described.error_message is None


def test_producers_of_partitions_that_are_not_here(producer: Producer, topic: str) -> None:
    wanted = [
        DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[9]),
        DescribeProducersRequest.TopicRequest(name="unknown", partition_indexes=[0]),
    ]
    answer = producer.harness.ask(DescribeProducersRequest(topics=wanted), 0)
    errors = [one.error_code for found in answer.topics for one in found.partitions]
    assert errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


@pytest.mark.parametrize("version", range(3))
def test_transactions_are_listed(producer: Producer, topic: str, version: int) -> None:
    producer.add(topic, 0)
    answer = producer.harness.ask(ListTransactionsRequest(state_filters=["Ongoing"]), version)
    assert producer.name in [one.transactional_id for one in answer.transaction_states]


def test_end_that_was_decided_before_a_restart_is_written_after_it(tmp_path: Path) -> None:
    with running(tmp_path) as harness:
        harness.create_topic("t", 2)
        producer = Producer(harness, "id")
        producer.add("t", 0, 1)
        producer.produce("t", b"x")
        producer.produce("t", b"x", partition=1)
    with running(tmp_path) as harness:
        producer.harness = harness
        find_coordinator(harness, "id")
        harness.until(lambda: producer.end() == ErrorCode.NONE)
        producer.until_ended()
        assert [end_offset(harness, "t", index) for index in (0, 1)] == [2, 2]
        later: Any = Producer(harness, "id")
        assert (later.id, later.epoch) == (producer.id, producer.epoch + 1)


def set_transaction_version(harness: Harness, level: int, *, upgrade_type: int) -> None:
    wanted = UpdateFeaturesRequest.FeatureUpdateKey(
        feature="transaction.version", max_version_level=level, upgrade_type=upgrade_type
    )
    assert harness.ask(UpdateFeaturesRequest(feature_updates=[wanted], timeout_ms=30_000), 2).error_code == 0


def test_downgrade_of_the_protocol_ends_its_open_transactions(tmp_path: Path) -> None:
    with running(tmp_path) as harness:
        harness.create_topic("t", 2)
        new, old = Producer(harness, "new"), Producer(harness, "old")
        assert new.produce("t", b"x", version=NEW).error_code == 0
        old.add("t", 1)
        assert old.produce("t", b"x", partition=1).error_code == 0
        set_transaction_version(harness, 0, upgrade_type=2)
        assert (new.state(), end_offset(harness, "t")) == ("CompleteAbort", 2)
        assert (old.state(), end_offset(harness, "t", 1)) == ("Ongoing", 1)
        assert old.end() == ErrorCode.NONE
        later = Producer(harness, "new")
        later.add("t", 0)
        assert later.produce("t", b"y").base_offset == 2
