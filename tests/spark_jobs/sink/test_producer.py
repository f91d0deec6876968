"""The producer that writes under a given identity: requests, repetitions and refusals."""

from __future__ import annotations

import itertools

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ApiMessage, ProduceRequest
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.settings import ClientSettings
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.sink.batches import ClosedBatch, Collector
from gregor.spark_jobs.sink.identity import ProducerIdentity
from gregor.spark_jobs.sink.options import SinkOptions
from gregor.spark_jobs.sink.producer import MAX_IN_FLIGHT, Producer
from gregor.spark_jobs.sink.transactions import Transactions, idempotent_identity
from tests.spark_jobs.sink.fake_broker import FakeBroker, Fault


def plain(broker: FakeBroker, **options: int) -> Producer:
    cluster = broker.cluster()
    return Producer(cluster, idempotent_identity(cluster), SinkOptions(cluster.settings, **options))  # type: ignore[arg-type]


def values(broker: FakeBroker, topic: str, partition: int) -> list[bytes | None]:
    return [record.value for record in broker.topics[topic][partition].committed()]


def test_records_are_written_in_their_order_with_few_requests() -> None:
    broker = FakeBroker({"a": 2, "b": 1})
    producer = plain(broker)
    for number in range(100):
        producer.append(TopicPartition("a", number % 2), b"k", b"%d" % number, [("h", b"1")])
        producer.append(TopicPartition("b", 0), None, b"%d" % number)
    producer.flush()
    assert values(broker, "a", 1) == [b"%d" % number for number in range(1, 100, 2)]
    assert values(broker, "b", 0) == [b"%d" % number for number in range(100)]
    assert broker.requests.count("ProduceRequest") == 1
    written = producer.written[TopicPartition("a", 1)]
    assert (written.records, written.first_offset, written.last_offset) == (50, 0, 49)


def test_batch_is_closed_when_the_next_record_does_not_fit() -> None:
    broker = FakeBroker({"a": 1})
    producer = plain(broker, batch_bytes=300)
    for _ in range(10):
        producer.append(TopicPartition("a", 0), None, b"v" * 100)
    producer.flush()
    sizes = [batch.size_bytes for batch in broker.topics["a"][0].batches]
    assert len(sizes) == 5 and max(sizes) <= 300
    assert values(broker, "a", 0) == [b"v" * 100] * 10


def test_requests_stay_below_their_size() -> None:
    broker = FakeBroker({"a": 10})
    producer = plain(broker, max_request_bytes=1000)
    for partition in range(10):
        producer.append(TopicPartition("a", partition), None, b"v" * 300)
    producer.flush()
    assert broker.requests.count("ProduceRequest") == 5
    with pytest.raises(JobError, match="a record for a-0 has 1026 bytes, which is more than kafka.max"):
        producer.append(TopicPartition("a", 0), None, b"v" * 1000)


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.RESPONSE_LOST])
def test_batch_whose_response_is_lost_is_there_once(fault: Fault) -> None:
    broker = FakeBroker({"a": 1})
    faults = iter([fault, fault])
    broker.faults = lambda _number, request: next(faults, None) if isinstance(request, ProduceRequest) else None
    producer = plain(broker, batch_bytes=200)
    for number in range(5):
        producer.append(TopicPartition("a", 0), None, b"%d" % number * 60)
    producer.flush()
    assert values(broker, "a", 0) == [b"%d" % number * 60 for number in range(5)]


def test_partitions_join_the_transaction_before_their_first_batch() -> None:
    broker = FakeBroker({"a": 3})
    cluster = broker.cluster()
    transactions = Transactions(cluster, "query", 1000)
    producer = Producer(cluster, transactions.begin_epoch(), SinkOptions(cluster.settings), transactions.add_partitions)
    for number in range(6):
        producer.append(TopicPartition("a", number % 3), None, b"v")
    producer.flush()
    producer.append(TopicPartition("a", 0), None, b"w")
    producer.flush()
    assert [name for name in broker.requests if name in ("AddPartitionsToTxnRequest", "ProduceRequest")] == [
        "AddPartitionsToTxnRequest",
        "ProduceRequest",
        "ProduceRequest",
    ]


def test_second_writer_of_a_partition_under_one_epoch_is_refused() -> None:
    broker = FakeBroker({"a": 1})
    identity = ProducerIdentity(1, 0)
    for expected in (2, None):
        cluster = broker.cluster()
        producer = Producer(cluster, identity, SinkOptions(cluster.settings))
        for _ in range(expected or 3):
            producer.append(TopicPartition("a", 0), None, b"v")
        if expected:
            producer.flush()
        else:
            with pytest.raises(KafkaFailure, match=r"a batch for a-0 was not written \(OUT_OF_ORDER_SEQUENCE_NUMBER\)"):
                producer.flush()


def test_code_of_a_refusal_is_that_of_the_broker() -> None:
    broker = FakeBroker({"a": 1})
    producer = plain(broker)

    def refuse(_number: int, request: ApiMessage) -> None:
        if isinstance(request, ProduceRequest):
            raise KafkaFailure(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "refused")

    broker.faults = refuse
    producer.append(TopicPartition("a", 0), None, b"v")
    with pytest.raises(KafkaFailure) as raised:
        producer.flush()
    assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def batches_of(producer: Producer, count: int, partition: int = 0) -> list[ClosedBatch]:
    """Return batches of one record each, whose values are their numbers."""
    collector = Collector(SinkOptions(ClientSettings((("fake", 9092),))), lambda: 5)
    for number in range(count):
        collector.append(TopicPartition("a", partition), None, b"%d" % number, ())
        collector.flush()
    return collector.closed()


def test_requests_are_in_flight_together_after_the_first_batch() -> None:
    broker = FakeBroker({"a": 1})
    producer = plain(broker)
    producer.write(batches_of(producer, 20))
    producer.flush()
    assert broker.max_in_flight == MAX_IN_FLIGHT
    assert values(broker, "a", 0) == [b"%d" % number for number in range(20)]
    written = producer.written[TopicPartition("a", 0)]
    assert (written.records, written.first_offset, written.last_offset) == (20, 0, 19)


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.RESPONSE_LOST])
@pytest.mark.parametrize("lost", range(9))
def test_each_batch_is_there_once_whichever_request_in_flight_is_lost(fault: Fault, lost: int) -> None:
    broker = FakeBroker({"a": 2})
    numbers = itertools.count()
    broker.faults = lambda _number, request: (
        fault if isinstance(request, ProduceRequest) and next(numbers) == lost else None
    )
    producer = plain(broker)
    producer.write([*batches_of(producer, 8), *batches_of(producer, 3, 1)])
    producer.write(batches_of(producer, 2, 1))
    producer.flush()
    assert values(broker, "a", 0) == [b"%d" % number for number in range(8)]
    assert values(broker, "a", 1) == [b"0", b"1", b"2", b"0", b"1"]


@pytest.mark.parametrize("refused", range(6))
def test_batches_behind_a_refused_one_keep_their_order(refused: int) -> None:
    """Also behind the first one, in whose place the broker would accept another."""
    broker = FakeBroker({"a": 1})
    broker.refusals = {refused: ErrorCode.NOT_ENOUGH_REPLICAS}
    producer = plain(broker)
    producer.write(batches_of(producer, 8))
    producer.flush()
    assert values(broker, "a", 0) == [b"%d" % number for number in range(8)]


def test_partition_that_a_response_lacks_is_an_error() -> None:
    broker = FakeBroker({"a": 1})
    producer = plain(broker)
    broker.refusals = {0: None}
    with pytest.raises(KafkaFailure, match=r"a batch for a-0 was not written: the response does not contain it"):
        producer.write(batches_of(producer, 1))
        producer.flush()
