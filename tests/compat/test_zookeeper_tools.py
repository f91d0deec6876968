"""The tools of the time of ZooKeeper, which speak to ZooKeeper and not to brokers, on a cluster of gregor.

Those of 1.1.1, with its own ZooKeeper client; those of 2.0.0 with that one too, because their own fails on Java 14 and
later (ZOOKEEPER-3779); and the console consumer of 0.10, which shares out partitions and keeps offsets in ZooKeeper.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.broker.cli.tool import Tool
from tests.support.gregor_cluster import PATIENCE_S, GregorCluster, until
from tests.support.kafka import java_command, kafka_jars
from tests.support.kafka_tools import KafkaTools, Said

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

TOPICS = "kafka.admin.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
REASSIGN = "kafka.admin.ReassignPartitionsCommand"
ELECT = "kafka.admin.PreferredReplicaLeaderElectionCommand"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GregorCluster]:
    with GregorCluster(tmp_path_factory.mktemp("cluster"), brokers=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tools() -> Iterator[KafkaTools]:
    with KafkaTools("1.1.1") as tools:
        yield tools


class Zoo:
    """Runs a tool with --zookeeper."""

    def __init__(self, cluster: GregorCluster, tools: KafkaTools) -> None:
        self.cluster = cluster
        self._tools = tools

    def __call__(self, main_class: str, *arguments: str) -> str:
        said: Said = self._tools.run(main_class, "--zookeeper", self.cluster.zookeeper.connect, *arguments)
        assert said.code == 0, said
        return said.out

    def assignment(self, topic: str) -> dict[int, list[int]]:
        node: dict[str, Any] = json.loads(self.cluster.nodes.get(f"/brokers/topics/{topic}")[0])
        return {int(index): replicas for index, replicas in node["partitions"].items()}


@pytest.fixture(scope="module")
def zoo(cluster: GregorCluster, tools: KafkaTools) -> Zoo:
    return Zoo(cluster, tools)


@pytest.fixture(scope="module")
def admin(cluster: GregorCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def partitions_of(admin: AdminClient, topic: str) -> dict[int, list[int]]:
    """Replicas by partition, as a broker's metadata has them; none while a partition has no leader."""
    found = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    if any(partition.leader < 0 for partition in found.values()):
        return {}
    return {index: partition.replicas for index, partition in found.items()}


def config_of(broker: str, resource: ConfigResource, key: str) -> str | None:
    client = AdminClient({"bootstrap.servers": broker})
    (found,) = client.describe_configs([resource]).values()
    entry = found.result(PATIENCE_S).get(key)
    return None if entry is None else entry.value


def test_a_topic_from_its_creation_to_its_end(zoo: Zoo, admin: AdminClient) -> None:
    create = ("--create", "--topic", "life", "--partitions", "2", "--replication-factor", "2")
    assert 'Created topic "life"' in zoo(TOPICS, *create, "--config", "retention.ms=100000")
    until(lambda: partitions_of(admin, "life") == zoo.assignment("life"), "the topic has leaders")
    assert "life" in zoo(TOPICS, "--list").split()
    described = zoo(TOPICS, "--describe", "--topic", "life").splitlines()
    assert "PartitionCount:2\tReplicationFactor:2\tConfigs:retention.ms=100000" in described[0]
    assert len(described) == 3
    topic_id = json.loads(zoo.cluster.nodes.get("/brokers/topics/life")[0])["topic_id"]
    zoo(TOPICS, "--alter", "--topic", "life", "--partitions", "4")
    until(lambda: len(partitions_of(admin, "life")) == 4, "the topic has grown")
    # The tool knows no topic ids and writes the node without.
    life = "/brokers/topics/life"
    until(lambda: json.loads(zoo.cluster.nodes.get(life)[0]).get("topic_id") == topic_id, "the id is there again")
    assert "life is marked for deletion" in zoo(TOPICS, "--delete", "--topic", "life")
    until(lambda: "life" not in zoo.cluster.nodes.get_children("/brokers/topics"), "the topic is gone")
    until(lambda: zoo.cluster.nodes.exists("/config/topics/life") is None, "its settings are gone")
    until(lambda: not list(zoo.cluster.folder.glob("broker-*/data/life-?")), "its folders are gone")


def test_settings_are_taken_over_by_every_broker(zoo: Zoo) -> None:
    zoo(TOPICS, "--create", "--topic", "settings", "--partitions", "1", "--replication-factor", "2")
    alter = ("--alter", "--entity-type", "topics", "--entity-name", "settings")
    topic = ConfigResource(ResourceType.TOPIC, "settings")
    zoo(CONFIGS, *alter, "--add-config", "max.message.bytes=2000,retention.ms=70000")
    said = zoo(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "settings")
    assert "max.message.bytes=2000" in said and "retention.ms=70000" in said
    for broker in zoo.cluster.brokers.values():
        until(lambda at=broker.bootstrap: config_of(at, topic, "max.message.bytes") == "2000", "it is in effect")  # type: ignore[misc]
    zoo(CONFIGS, *alter, "--delete-config", "max.message.bytes")
    for broker in zoo.cluster.brokers.values():
        until(lambda at=broker.bootstrap: config_of(at, topic, "max.message.bytes") != "2000", "it is taken back")  # type: ignore[misc]
    # The only settings of brokers that this tool reaches by ZooKeeper.
    rate = "leader.replication.throttled.rate"
    zoo(CONFIGS, "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", f"{rate}=1000000")
    first, second = (broker.bootstrap for broker in zoo.cluster.brokers.values())
    until(lambda: config_of(second, ConfigResource(ResourceType.BROKER, "1"), rate) == "1000000", "broker 1 has it")
    assert config_of(first, ConfigResource(ResourceType.BROKER, "0"), rate) != "1000000"


def test_quotas_of_users_and_clients_are_in_effect_on_every_broker(zoo: Zoo) -> None:
    user, client = ("--entity-type", "users", "--entity-name"), ("--entity-type", "clients", "--entity-name")
    entities = {
        (*user, "anna"): "user-principal 'anna'",
        (*client, "etl"): "client-id 'etl'",
        (*user, "anna", *client, "etl"): "user-principal 'anna', client-id 'etl'",
        ("--entity-type", "clients", "--entity-default"): "the default client-id",
    }
    tools = [Tool(broker.bootstrap) for broker in zoo.cluster.brokers.values()]

    def described(flags: tuple[str, ...]) -> set[str]:
        return {tool.run("configs", "--describe", *flags) for tool in tools}

    for number, (flags, title) in enumerate(entities.items(), 1):
        zoo(CONFIGS, "--alter", *flags, "--add-config", f"producer_byte_rate={number}000,consumer_byte_rate=5000")
        line = f"Quota configs for {title} are consumer_byte_rate=5000.0, producer_byte_rate={number}000.0\n"
        until(lambda f=flags, shown=line: described(f) == {shown}, "each broker has it")  # type: ignore[misc]
        assert f"producer_byte_rate={number}000" in zoo(CONFIGS, "--describe", *flags)
    for flags in entities:
        zoo(CONFIGS, "--alter", *flags, "--delete-config", "producer_byte_rate,consumer_byte_rate")
        until(lambda f=flags: described(f) == {""}, "no broker has it")  # type: ignore[misc]


def test_partitions_move(zoo: Zoo, admin: AdminClient, tmp_path: pathlib.Path) -> None:
    zoo(TOPICS, "--create", "--topic", "moving", "--replica-assignment", "0,1")
    until(lambda: partitions_of(admin, "moving") == {0: [0], 1: [1]}, "the topic has leaders")
    producer = Producer({"bootstrap.servers": zoo.cluster.bootstrap})
    for number in range(100):
        producer.produce("moving", str(number), partition=0)
    assert producer.flush(PATIENCE_S) == 0
    topics = tmp_path / "topics.json"
    topics.write_text('{"version":1,"topics":[{"topic":"moving"}]}')
    proposed = zoo(REASSIGN, "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "0,1")
    assert "Proposed partition reassignment configuration" in proposed
    plan = tmp_path / "plan.json"
    plan.write_text('{"version":1,"partitions":[{"topic":"moving","partition":0,"replicas":[1]}]}')
    started = zoo(REASSIGN, "--execute", "--reassignment-json-file", str(plan))
    assert "Successfully started reassignment of partitions" in started

    def verified() -> bool:
        said = zoo(REASSIGN, "--verify", "--reassignment-json-file", str(plan))
        return "Reassignment of partition moving-0 completed successfully" in said

    until(verified, "the partition has moved")
    assert zoo.assignment("moving") == {0: [1], 1: [1]}
    until(lambda: partitions_of(admin, "moving").get(0) == [1], "brokers know")
    until(lambda: zoo.cluster.nodes.exists("/admin/reassign_partitions") is None, "the plan is gone")
    until(lambda: not (zoo.cluster.folder / "broker-0/data/moving-0").exists(), "the old replica is gone")


def test_the_preferred_leader_leads_again(zoo: Zoo, tmp_path: pathlib.Path) -> None:
    zoo(TOPICS, "--create", "--topic", "preferred", "--replica-assignment", "1:0")
    assert zoo.cluster.until_led("preferred") == 1
    zoo.cluster.until_isr("preferred", [0, 1])
    plan = tmp_path / "plan.json"
    plan.write_text('{"version":1,"partitions":[{"topic":"preferred","partition":0,"replicas":[0,1]}]}')
    zoo(REASSIGN, "--execute", "--reassignment-json-file", str(plan))
    until(lambda: zoo.assignment("preferred") == {0: [0, 1]}, "the order has changed")
    zoo(ELECT, "--path-to-json-file", str(plan))
    until(lambda: zoo.cluster.until_led("preferred") == 0, "broker 0 leads")
    until(lambda: zoo.cluster.nodes.exists("/admin/preferred_replica_election") is None, "the order is gone")


def test_tools_of_2_0(zoo: Zoo, admin: AdminClient) -> None:
    (client,) = kafka_jars("1.1.1").glob("zookeeper-3.*.jar")
    with KafkaTools("2.0.0", client) as tools:
        newer = Zoo(zoo.cluster, tools)
        newer(TOPICS, "--create", "--topic", "newer", "--partitions", "3", "--replication-factor", "2")
        until(lambda: len(partitions_of(admin, "newer")) == 3, "the topic has leaders")
        assert "newer" in newer(TOPICS, "--list").split()
        alter = ("--alter", "--entity-type", "topics", "--entity-name", "newer", "--add-config", "retention.ms=80000")
        newer(CONFIGS, *alter)
        newer(TOPICS, "--delete", "--topic", "newer")
        until(lambda: "newer" not in zoo.cluster.nodes.get_children("/brokers/topics"), "the topic is gone")


@pytest.mark.parametrize("release", ["0.10.2.2", "0.10.0.1"])
def test_a_consumer_that_keeps_its_offsets_in_zookeeper(
    zoo: Zoo, admin: AdminClient, release: str, tmp_path: pathlib.Path
) -> None:
    topic = f"read-by-{release}"
    zoo(TOPICS, "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "2")
    until(lambda: len(partitions_of(admin, topic)) == 2, "the topic has leaders")
    producer = Producer({"bootstrap.servers": zoo.cluster.bootstrap})
    for number in range(50):
        producer.produce(topic, str(number), partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0
    settings = tmp_path / "consumer.properties"
    settings.write_text(f"group.id=old-{release}\nauto.commit.interval.ms=200\n")
    command = java_command(
        "kafka.tools.ConsoleConsumer",
        *("--zookeeper", zoo.cluster.zookeeper.connect, "--topic", topic, "--max-messages", "50"),
        *("--consumer.config", str(settings), "--timeout-ms", "90000", "--from-beginning"),
        heap_mb=128,
        version=release,
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert sorted(map(int, done.stdout.split())) == list(range(50)), done.stderr
    offsets = {
        index: int(zoo.cluster.nodes.get(f"/consumers/old-{release}/offsets/{topic}/{index}")[0]) for index in (0, 1)
    }
    assert offsets == {0: 25, 1: 25}
