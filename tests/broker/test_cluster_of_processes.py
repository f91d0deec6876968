"""Three brokers on a ZooKeeper: one that is suspended, no ZooKeeper for a while, settings that change on all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from gregor.broker.launch.zookeeper_server import ZooKeeperMissing
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import random_uuid
from gregor.protocol.messages import (
    ApiMessage,
    DescribeClusterRequest,
    DescribeClusterResponse,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
)
from gregor.protocol.sync_client import ConnectionEnded
from gregor.replication.store import nodes
from tests.support.gate import Gate
from tests.support.gregor_cluster import PATIENCE_S, SESSION_TIMEOUT_MS, GregorCluster
from tests.support.processes import BrokerProcess
from tests.support.repeating import repeating
from tests.support.topic_settings import alteration, description
from tests.support.wire import ask

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.very_slow]

PARTITIONS = 3
EARLIEST = -2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GregorCluster]:
    try:
        cluster = GregorCluster(tmp_path_factory.mktemp("cluster"), overrides={"min.insync.replicas": "2"})
        with cluster:
            yield cluster
    except ZooKeeperMissing as error:
        pytest.skip(str(error))


MakeTopic = Callable[[str], str]


def create(cluster: GregorCluster, new: NewTopic) -> None:
    def made() -> bool:
        # A client of this kind does not find a new controller by itself.
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        (creation,) = admin.create_topics([new], request_timeout=PATIENCE_S).values()
        try:
            creation.result(PATIENCE_S)
        except KafkaException as error:
            assert error.args[0].code() == KafkaError.NOT_CONTROLLER
            return False
        return True

    cluster.until(made, f"the controller makes {new.topic}")


@pytest.fixture
def make_topic(cluster: GregorCluster) -> MakeTopic:
    def make(name: str) -> str:
        create(cluster, NewTopic(name, PARTITIONS, 3))
        for index in range(PARTITIONS):
            cluster.until_led(name, index)
        return name

    return make


class Load:
    """An idempotent producer with acks=all, and a reader of everything."""

    def __init__(self, cluster: GregorCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._sent = 0
        self._errors: list[object] = []
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "message.timeout.ms": 120000}
        )

    def go_on(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._producer.produce(
                self._topic,
                str(self._sent),
                partition=self._sent % PARTITIONS,
                on_delivery=lambda error, _: self._errors.append(error) if error else None,
            )
            self._sent += 1
            self._producer.poll(0.01)

    def delivered(self) -> None:
        """All of it, each once, in order."""
        assert self._producer.flush(120) == 0
        assert self._errors == []
        consumer = Consumer(
            {"bootstrap.servers": self._cluster.bootstrap, "group.id": "judge", "enable.partition.eof": False}
        )
        found: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
        consumer.assign([TopicPartition(self._topic, index, 0) for index in found])
        end = time.monotonic() + PATIENCE_S
        while sum(map(len, found.values())) < self._sent and time.monotonic() < end:
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                found[message.partition() or 0].append(int(message.value() or b""))
        consumer.close()
        assert found == {index: list(range(index, self._sent, PARTITIONS)) for index in found}


def test_a_suspended_broker_is_replaced_and_comes_back(cluster: GregorCluster, make_topic: MakeTopic) -> None:
    load = Load(cluster, make_topic("suspended"))
    load.go_on(1)
    suspended = cluster.until_led("suspended")
    cluster.suspend(suspended)
    try:
        cluster.until_led("suspended", not_by=suspended)
        load.go_on(1)
    finally:
        cluster.resume(suspended)
    load.go_on(1)
    for index in range(PARTITIONS):
        cluster.until_isr("suspended", [0, 1, 2], index)
    load.delivered()
    log = cluster.brokers[suspended].log()
    assert "stops leading" in log and "registered again, with epoch" in log


def test_without_zookeeper_for_longer_than_a_session(cluster: GregorCluster, make_topic: MakeTopic) -> None:
    load = Load(cluster, make_topic("alone"))
    load.go_on(0.5)
    load.delivered()  # a producer gets its id with ZooKeeper only
    cluster.zookeeper.kill()
    try:
        load.go_on(SESSION_TIMEOUT_MS / 1000 + 2)
        load.delivered()
    finally:
        cluster.zookeeper.start()
    cluster.until(lambda: cluster.registered() == {0, 1, 2}, "all are registered")
    make_topic("afterwards")
    # And it is watched over again.
    killed = cluster.until_led("alone")
    cluster.kill(killed)
    try:
        cluster.until_led("alone", not_by=killed)
    finally:
        cluster.start(killed)
    load.go_on(0.5)
    for index in range(PARTITIONS):
        cluster.until_isr("alone", [0, 1, 2], index)
    load.delivered()


def test_a_restarted_broker_denies_no_topic(cluster: GregorCluster, make_topic: MakeTopic) -> None:
    """It accepts connections before the controller has sent it the topics."""
    make_topic("known")
    restarted = cluster.until_led("known")
    port = cluster.brokers[restarted].port
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    topics = [ListOffsetsRequest.ListOffsetsTopic(name="known", partitions=[wanted])]
    answers: list[ErrorCode] = []

    def ask_always() -> None:
        with suppress(OSError, ConnectionEnded):
            answer = ask(port, ListOffsetsRequest(topics=topics), 7)
            answers.append(ErrorCode(answer.topics[0].partitions[0].error_code))

    for end in (cluster.stop, cluster.kill):
        with repeating(ask_always, 0.001):
            end(restarted)
            answers.clear()
            cluster.start(restarted)
            cluster.until_isr("known", [0, 1, 2])
        assert answers
        assert set(answers) <= {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_settings_change_on_all_brokers(cluster: GregorCluster, make_topic: MakeTopic) -> None:
    topic = ConfigResource(ResourceType.TOPIC, make_topic("settings"))
    clients = {id_: AdminClient({"bootstrap.servers": broker.bootstrap}) for id_, broker in cluster.brokers.items()}

    def alter(client: AdminClient, type_: ResourceType, name: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        (done,) = client.incremental_alter_configs(
            [ConfigResource(type_, name, incremental_configs=[entry])], request_timeout=PATIENCE_S
        ).values()
        done.result(PATIENCE_S)

    def value(broker_id: int, resource: ConfigResource, key: str) -> str | None:
        (found,) = clients[broker_id].describe_configs([resource], request_timeout=PATIENCE_S).values()
        text: str | None = found.result(PATIENCE_S)[key].value
        return text

    def own(broker_id: int) -> ConfigResource:
        return ConfigResource(ResourceType.BROKER, str(broker_id))

    alter(clients[1], ResourceType.TOPIC, "settings", "max.message.bytes", "12345")
    # Of all brokers: as a tool writes it that speaks to ZooKeeper.
    cluster.nodes.create("/config/brokers/<default>", nodes.encode_config({"log.retention.ms": "7654321"}))
    notice = nodes.encode_config_change("brokers/<default>")
    cluster.nodes.create(nodes.CONFIG_CHANGE_PREFIX, notice, sequence=True)
    alter(clients[0], ResourceType.BROKER, "1", "message.max.bytes", "222222")

    def everywhere() -> bool:
        topics = [value(id_, topic, "max.message.bytes") for id_ in clients]
        brokers = [value(id_, own(id_), "log.retention.ms") for id_ in clients]
        return topics == ["12345"] * 3 and brokers == ["7654321"] * 3

    cluster.until(everywhere, "all brokers act by the new settings")
    cluster.until(lambda: value(1, own(1), "message.max.bytes") == "222222", "broker 1 acts by its own")
    assert value(0, own(0), "message.max.bytes") == value(2, own(2), "message.max.bytes") == "1048588"


@contextmanager
def one_more_broker(cluster: GregorCluster, broker_id: int, overrides: Mapping[str, str]) -> Iterator[BrokerProcess]:
    """A broker that is gone from the shared cluster in the end, whatever its test did not come to."""
    broker = cluster.add(broker_id, overrides)
    try:
        cluster.start(broker_id)
        yield broker
    finally:
        cluster.kill(broker_id)
        del cluster.brokers[broker_id]


def error_of_reads(broker: BrokerProcess, topic: str) -> ErrorCode:
    """Request the offset of partition 0 of the topic from this very broker; only its leader knows it."""
    part = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    wanted = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])
    answer = ask(broker.port, ListOffsetsRequest(replica_id=-1, topics=[wanted]), 5)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def test_a_broker_that_alone_has_no_zookeeper_leads_no_longer(cluster: GregorCluster) -> None:
    with (
        Gate(cluster.zookeeper.port) as gate,
        one_more_broker(cluster, 7, {"zookeeper.connect": f"127.0.0.1:{gate.port}"}) as cut_off,
    ):
        # As a tool makes it that speaks to ZooKeeper.
        assignment = nodes.TopicAssignment(random_uuid(), nodes.replica_assignments({0: (7, 0)}))
        cluster.nodes.create(nodes.topic_path("cut-off"), nodes.encode_topic(assignment))
        assert cluster.until_led("cut-off") == 7
        cluster.until_isr("cut-off", [0, 7])
        # The controller elects it before it knows of that itself; for that it reads the topic's settings in ZooKeeper.
        cluster.until(lambda: error_of_reads(cut_off, "cut-off") is ErrorCode.NONE, "broker 7 leads by its own account")
        gate.shut()
        assert cluster.until_led("cut-off", not_by=7) == 0
        cluster.until(
            lambda: error_of_reads(cut_off, "cut-off") is ErrorCode.NOT_LEADER_OR_FOLLOWER, "broker 7 leads no longer"
        )
        assert "fenced: the cluster considers this broker dead" in cut_off.log(), cluster.log_tails()
        gate.open()
        cluster.until(lambda: 7 in cluster.registered(), "broker 7 is registered again")
        cluster.until_isr("cut-off", [0, 7])
        assert cluster.stop(7) == 0


def test_any_broker_answers_for_the_whole_cluster(cluster: GregorCluster) -> None:
    # Each topic has its only replica on one broker, and clients send their requests to any broker.
    names = [f"only-{id_}" for id_ in cluster.brokers]
    for name, id_ in zip(names, cluster.brokers, strict=True):
        create(cluster, NewTopic(name, 1, replica_assignment=[[id_]]))

    def asked(request: ApiMessage, version: int) -> list[Any]:
        return [ask(broker.port, request, version) for broker in cluster.brokers.values()]

    def agreed(request: ApiMessage, version: int) -> bool:
        return _alike(asked(request, version))

    def described(names: list[str], value: str) -> bool:
        answers = asked(description(names, "retention.ms"), 4)
        return _alike(answers) and [one.configs[0].value for one in answers[0].results] == [value] * len(names)

    groups = FindCoordinatorRequest(key_type=0, coordinator_keys=[f"group-{number}" for number in range(10)])
    cluster.until(
        lambda: all(not one.error_code for a in asked(groups, 4) for one in a.coordinators), "groups are looked after"
    )
    topics = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names])
    cluster.until(lambda: all(not one.error_code for a in asked(topics, 9) for one in a.topics), "topics are known")
    for request, version in ((topics, 9), (DescribeClusterRequest(), 1), (groups, 4)):
        cluster.until(partial(agreed, request, version), f"all brokers answer {request} alike")
    for through in cluster.brokers:
        for name in names:
            request = alteration(name, "retention.ms", str(10**9 + through))
            [answer] = ask(cluster.brokers[through].port, request, 1).responses
            assert answer.error_code == 0, answer.error_message
        cluster.until(partial(described, names, str(10**9 + through)), "all brokers describe the topics alike")


def _alike(answers: list[Any]) -> bool:
    for answer in answers:
        if isinstance(answer, MetadataResponse):
            answer.brokers.sort(key=lambda broker: broker.node_id)
        elif isinstance(answer, DescribeClusterResponse):
            answer.brokers.sort(key=lambda broker: broker.broker_id)
    return all(answer == answers[0] for answer in answers)
