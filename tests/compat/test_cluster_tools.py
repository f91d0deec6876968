"""Apache Kafka's tools, and a consumer that reads in its rack, on three brokers of which one goes away."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from gregor.replication.store import nodes
from tests.support.gregor_cluster import PATIENCE_S, GregorCluster, until
from tests.support.kafka_tools import KafkaTools

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

TOPICS = "org.apache.kafka.tools.TopicCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
SETTINGS = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
RECORDS = 50

Run = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GregorCluster]:
    cluster = GregorCluster(tmp_path_factory.mktemp("cluster"), 3, SETTINGS)
    for broker_id, broker in cluster.brokers.items():
        broker.overrides["broker.rack"] = f"rack-{broker_id}"
    with cluster:
        yield cluster


@pytest.fixture(scope="module")
def run(cluster: GregorCluster) -> Iterator[Run]:
    with KafkaTools() as tools:

        def run(main_class: str, *arguments: str, code: int = 0) -> str:
            said = tools.run(main_class, "--bootstrap-server", cluster.bootstrap, *arguments)
            assert said.code == code, said
            return said.out + said.err

        yield run


def create(run: Run, cluster: GregorCluster, topic: str, assignment: str, *arguments: str) -> None:
    run(TOPICS, "--create", "--topic", topic, "--replica-assignment", assignment, *arguments)
    for index, replicas in enumerate(assignment.split(",")):
        cluster.until_isr(topic, map(int, replicas.split(":")), index)


def listed(said: str) -> list[str]:
    """Topic and number of each partition that a description names."""
    words = [line.replace("\t", " ").split() for line in said.splitlines()]
    return [f"{line[1]}-{line[3]}" for line in words if line[2:3] == ["Partition:"]]


def check_read_from(cluster: GregorCluster, topic: str, rack: str, expected: int) -> None:
    """Read partition 0, and wait until it comes from this broker alone, by the client's own account."""
    found: set[int] = set()

    def told(text: str) -> None:
        statistics: dict[str, Any] = json.loads(text)
        found.clear()
        found.update(p["0"]["broker"] for t in statistics["topics"].values() if "0" in (p := t["partitions"]))

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": rack,
            "client.rack": rack,
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 200,
            "stats_cb": told,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []

    def is_read() -> bool:
        values.extend(message.value() for message in consumer.consume(RECORDS, 0.2) if message.error() is None)
        return len(values) >= RECORDS

    try:
        until(is_read, f"{RECORDS} records read by {rack}")
        found.clear()
        until(lambda: consumer.poll(0.2) is None and found == {expected}, f"{rack} reads from broker {expected}")
    finally:
        consumer.close()
    assert values == [b"%d" % number for number in range(RECORDS)]


def test_a_broker_that_is_away(run: Run, cluster: GregorCluster, tmp_path: pathlib.Path) -> None:
    create(run, cluster, "three", "0:1:2,1:2:0,2:0:1")
    create(run, cluster, "strict", "2:0:1", "--config", "min.insync.replicas=3")
    create(run, cluster, "one", "0,1,2")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(RECORDS):
        producer.produce("three", b"%d" % number, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    check_read_from(cluster, "three", "rack-2", 2)
    check_read_from(cluster, "three", "rack-of-nobody", 0)
    cluster.kill(2)
    for topic, index in (("three", 0), ("three", 1), ("three", 2), ("strict", 0)):
        cluster.until_isr(topic, [0, 1], index)

    def described(which: str) -> list[str]:
        return sorted(listed(run(TOPICS, "--describe", "--exclude-internal", f"--{which}-partitions")))

    # Each broker gets the new metadata at its own time.
    under = ["strict-0", "three-0", "three-1", "three-2"]
    until(lambda: described("unavailable") == ["one-2"], "nobody leads one-2")
    until(lambda: described("under-replicated") == under, "the others are known to be with fewer replicas")
    until(lambda: described("under-min-isr") == ["one-2", "strict-0"], "two take no writes")
    elected = run(ELECT, "--election-type", "preferred", "--topic", "three", "--partition", "2", code=1)
    assert "PreferredLeaderNotAvailableException" in elected
    check_read_from(cluster, "three", "rack-2", 0)

    # Changes that are requested while the broker is away are done when it is back.
    run(TOPICS, "--create", "--topic", "given", "--replica-assignment", "0:1:2")
    typo = run(TOPICS, "--create", "--topic", "typo", "--replica-assignment", "0:1:7", code=1)
    assert "[7]" in typo
    run(TOPICS, "--delete", "--topic", "one")
    until(lambda: "one" not in run(TOPICS, "--list").split(), "it is known no more")
    assert "still being deleted" in run(TOPICS, "--create", "--topic", "one", "--partitions", "1", code=1)
    cluster.start(2)
    cluster.until_isr("given", [0, 1, 2])
    cluster.until_isr("three", [0, 1, 2], 2)
    until(lambda: cluster.nodes.exists(nodes.topic_path("one")) is None, "the topic is deleted")
    create(run, cluster, "one", "2")
    run(ELECT, "--election-type", "preferred", "--topic", "three", "--partition", "2")
    assert cluster.until_led("three", 2) == 2
    until(lambda: described("under-replicated") == [], "all replicas are known to be in sync")
