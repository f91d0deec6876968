"""Transactions of librdkafka: on one broker, and on three of which leaders and coordinators end meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.broker.cluster.transaction_timeouts import TransactionTimeouts
from gregor.broker.jobs.background import Background
from gregor.broker.jobs.turns import LoopGate
from gregor.broker.launch.zookeeper_server import ZooKeeperMissing
from gregor.config.broker import BrokerConfig
from gregor.coordinator.partitioner import partition_of
from gregor.protocol.messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    UpdateMetadataRequest,
)
from gregor.protocol.topic_names import TRANSACTION_STATE_TOPIC
from gregor.protocol.turns import run_all
from gregor.replication.partition.metadata_image import MetadataImage
from tests.compat.records import until
from tests.support.gregor_cluster import GregorCluster
from tests.support.processes import BrokerProcess
from tests.support.stolen_time import UndisturbedTime
from tests.support.wire import ask

PARTITIONS = 3
TRANSACTION_PARTITIONS = 4
WAIT_S = 120.0
MAX_FIRST_S = 1.0
"""For the first transactional id and the topic for it, without the time for which others had the processors."""
TRANSACTION_COORDINATOR = 1
"""The type of the key in FindCoordinator."""
SETTINGS = {
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
    "transaction.state.log.num.partitions": str(TRANSACTION_PARTITIONS),
}


def make_topic(bootstrap: str, name: str, replicas: int) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (creation,) = admin.create_topics([NewTopic(name, PARTITIONS, replicas)], request_timeout=WAIT_S).values()
    creation.result(WAIT_S)
    return name


def transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 300_000,
            "message.timeout.ms": 300_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(WAIT_S)
    return producer


def send(producer: Producer, topic: str, text: str) -> None:
    """One record to each partition, delivered when this returns."""
    errors: list[object] = []
    for index in range(PARTITIONS):
        producer.produce(topic, text, partition=index, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    assert errors == [None] * PARTITIONS


def transaction(producer: Producer, topic: str, text: str, *, commit: bool = True) -> None:
    producer.begin_transaction()
    send(producer, topic, text)
    if commit:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)


def committed(bootstrap: str, topic: str, end: str) -> list[list[str]]:
    """Return the values that a read_committed consumer gets from each partition up to the value `end`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    until_s = time.monotonic() + WAIT_S
    while not all(values[-1:] == [end] for values in found):
        assert time.monotonic() < until_s, found
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found[message.partition() or 0].append((message.value() or b"").decode())
    consumer.close()
    return found


@pytest.mark.slow
def test_first_producer_id_comes_within_a_second(tmp_path: Path) -> None:
    """With the topic for it, which its coordinator creates and loads."""
    find = FindCoordinatorRequest(key="one", key_type=TRANSACTION_COORDINATOR)
    init = InitProducerIdRequest(transactional_id="one", transaction_timeout_ms=60_000)
    with BrokerProcess(tmp_path) as broker:
        spent = UndisturbedTime(broker.pid)
        until(lambda: not ask(broker.port, find, 3).error_code, "a coordinator", WAIT_S)
        until(lambda: not ask(broker.port, init, 5).error_code, "a producer id", WAIT_S)
        assert spent.seconds() < MAX_FIRST_S


@pytest.mark.slow
def test_on_one_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        topic = make_topic(broker.bootstrap, "t", 1)
        producer = transactional(broker.bootstrap, "one")
        transaction(producer, topic, "a")
        transaction(producer, topic, "no", commit=False)
        transaction(producer, topic, "b")
        assert committed(broker.bootstrap, topic, "b") == [["a", "b"]] * PARTITIONS
        # The next producer of this id aborts what the one before has left.
        producer.begin_transaction()
        send(producer, topic, "left")
        later = transactional(broker.bootstrap, "one")
        transaction(later, topic, "c")
        assert committed(broker.bootstrap, topic, "c") == [["a", "b", "c"]] * PARTITIONS
        del producer
        broker.stop()
        broker.start()
        transaction(later, topic, "d")
        assert committed(broker.bootstrap, topic, "d") == [["a", "b", "c", "d"]] * PARTITIONS
        assert "failed" not in broker.log()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GregorCluster]:
    try:
        with GregorCluster(tmp_path_factory.mktemp("cluster"), overrides=SETTINGS) as cluster:
            yield cluster
    except ZooKeeperMissing as error:
        pytest.skip(str(error))


def coordinator_of(cluster: GregorCluster, name: str) -> int:
    return cluster.until_led(TRANSACTION_STATE_TOPIC, partition_of(name, TRANSACTION_PARTITIONS))


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.very_slow
def test_markers_reach_the_leaders_on_all_brokers(cluster: GregorCluster) -> None:
    topic = make_topic(cluster.bootstrap, "spread", 3)
    leaders = {cluster.until_led(topic, index) for index in range(PARTITIONS)}
    assert leaders == {0, 1, 2}
    producer = transactional(cluster.bootstrap, "spread")
    for number in range(10):
        transaction(producer, topic, str(number), commit=number % 3 != 1)
    transaction(producer, topic, "end")
    expected = [str(number) for number in range(10) if number % 3 != 1] + ["end"]
    assert committed(cluster.bootstrap, topic, "end") == [expected] * PARTITIONS


class NoTransactions:
    """A coordinator without transactional ids."""

    async def list(self, request: ListTransactionsRequest, version: int) -> ListTransactionsResponse:
        return ListTransactionsResponse(transaction_states=[])

    async def describe(self, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(transaction_states=[])


def image_of(cluster: GregorCluster) -> MetadataImage:
    """Return what another broker of the cluster would know of the coordinators."""
    brokers = [
        UpdateMetadataRequest.UpdateMetadataBroker(
            id=broker_id,
            endpoints=[
                UpdateMetadataRequest.UpdateMetadataEndpoint(host="127.0.0.1", port=broker.port, listener="PLAINTEXT")
            ],
        )
        for broker_id, broker in cluster.brokers.items()
    ]
    states = [
        UpdateMetadataRequest.UpdateMetadataPartitionState(
            partition_index=index, leader=cluster.until_led(TRANSACTION_STATE_TOPIC, index)
        )
        for index in range(TRANSACTION_PARTITIONS)
    ]
    topic = UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=TRANSACTION_STATE_TOPIC, partition_states=states)
    image = MetadataImage()
    run_all(image.apply(UpdateMetadataRequest(live_brokers=brokers, topic_states=[topic])))
    return image


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.very_slow
def test_timeouts_of_transactions_come_from_the_coordinators(cluster: GregorCluster) -> None:
    find = FindCoordinatorRequest(key="timeout-0", key_type=TRANSACTION_COORDINATOR)
    until(lambda: not ask(cluster.brokers[0].port, find, 3).error_code, "a coordinator", WAIT_S)
    expected: dict[int, int] = {}
    coordinators = set()
    for number in range(8):
        name = f"timeout-{number}"
        coordinator = coordinator_of(cluster, name)
        coordinators.add(coordinator)
        init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10_000 + number)
        answers: list[InitProducerIdResponse] = []

        def ready(
            port: int = cluster.brokers[coordinator].port,
            init: InitProducerIdRequest = init,
            answers: list[InitProducerIdResponse] = answers,
        ) -> bool:
            answers.append(ask(port, init, 5))
            return not answers[-1].error_code

        until(ready, f"a producer id of {name}", WAIT_S)
        expected[answers[-1].producer_id] = 10_000 + number
    assert len(coordinators) > 1
    image = image_of(cluster)

    async def timeouts() -> dict[int, int]:
        background = Background(LoopGate())
        searching = TransactionTimeouts(BrokerConfig({"broker.id": "9"}), image, NoTransactions(), background)
        try:
            return await searching.of([*expected, 2**40])
        finally:
            searching.close()
            await background.close()

    assert asyncio.run(timeouts()) == expected


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.very_slow
@pytest.mark.parametrize("part", ["leader", "coordinator"])
@pytest.mark.parametrize("commit", [True, False])
def test_transaction_ends_although_a_broker_is_killed(cluster: GregorCluster, part: str, commit: bool) -> None:
    name = f"killed-{part}-{commit}"
    topic = make_topic(cluster.bootstrap, name, 3)
    producer = transactional(cluster.bootstrap, name)
    transaction(producer, topic, "first")
    coordinator = coordinator_of(cluster, name)
    leaders = [cluster.until_led(topic, index) for index in range(PARTITIONS)]
    victim = coordinator if part == "coordinator" else next(one for one in leaders if one != coordinator)
    producer.begin_transaction()
    send(producer, topic, "second")
    cluster.kill(victim)
    try:
        if commit:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
    finally:
        cluster.start(victim)
    transaction(producer, topic, "end")
    expected = ["first", "second", "end"] if commit else ["first", "end"]
    assert committed(cluster.bootstrap, topic, "end") == [expected] * PARTITIONS
    for index in range(PARTITIONS):
        cluster.until_isr(topic, [0, 1, 2], index)
