"""Two real brokers: whether a replica that lacks acknowledged records may lead is the topic's own affair."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.broker.launch.zookeeper_server import ZooKeeperMissing, find_jars
from tests.support.gregor_cluster import GregorCluster, until

pytestmark = [pytest.mark.jvm, pytest.mark.very_slow]

TIMEOUT_S = 120.0
TOPICS = {"kept": "false", "available": "true"}
"""Topic -> its value of unclean.leader.election.enable."""


def produce(cluster: GregorCluster, broker_id: int, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": cluster.brokers[broker_id].bootstrap, "acks": "all", "log_level": 0})
    refused = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: error and refused.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert refused == []


def read(cluster: GregorCluster, broker_id: int, topic: str, count: int) -> list[bytes | None]:
    settings = {"bootstrap.servers": cluster.brokers[broker_id].bootstrap, "group.id": "reader", "log_level": 0}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []

    def is_read() -> bool:
        found.extend(one.value() for one in consumer.consume(count, 0.2) if one.error() is None)
        return len(found) >= count

    try:
        until(is_read, f"{count} records of {topic}")
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (0, count)
    finally:
        consumer.close()
    return found


def has(cluster: GregorCluster, topic: str, leader: int, isr: tuple[int, ...]) -> bool:
    state = cluster.partition(topic)
    return state is not None and (state.leader, tuple(state.isr)) == (leader, isr)


def values(name: bytes) -> list[bytes]:
    return [b"%s %d" % (name, number) for number in range(10)]


def test_a_replica_without_all_records_leads_only_where_that_is_allowed(tmp_path: Path) -> None:
    try:
        find_jars()
    except ZooKeeperMissing as error:
        pytest.skip(str(error))
    with GregorCluster(tmp_path, 2) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.brokers[0].bootstrap, "log_level": 0})
        topics = [
            NewTopic(name, 1, replica_assignment=[[0, 1]], config={"unclean.leader.election.enable": allowed})
            for name, allowed in TOPICS.items()
        ]
        for future in admin.create_topics(topics).values():
            future.result(TIMEOUT_S)
        for topic in TOPICS:
            cluster.until_isr(topic, [0, 1])
            produce(cluster, 0, topic, values(b"both"))
        cluster.kill(1)
        for topic in TOPICS:
            cluster.until_isr(topic, [0])
            produce(cluster, 0, topic, values(b"one"))
        cluster.kill(0)
        until(lambda: cluster.registered() == set(), "the cluster knows that both are gone")

        cluster.start(1)
        assert cluster.until_led("available") == 1
        cluster.until_isr("available", [1])
        # The controller comes to one partition after the other.
        until(lambda: has(cluster, "kept", -1, (0,)), "kept has no leader, and its ISR is as it was")
        assert read(cluster, 1, "available", 10) == values(b"both")
        produce(cluster, 1, "available", values(b"other"))

        cluster.start(0)
        assert cluster.until_led("kept") == 0
        for topic in TOPICS:
            cluster.until_isr(topic, [0, 1])
        assert read(cluster, 0, "kept", 20) == values(b"both") + values(b"one")
        assert read(cluster, 0, "available", 20) == values(b"both") + values(b"other")
