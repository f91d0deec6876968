"""Partitions that today's kafka-reassign-partitions moves between brokers below a rate, under load."""

from __future__ import annotations

import json
import os
import pathlib
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from gregor.replication.store import nodes
from tests.compat.records import WAIT_S
from tests.support.gregor_cluster import GregorCluster, until
from tests.support.kafka_tools import KafkaTools

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOPIC = "moved"
RECORDS = 1500
RECORD_BYTES = 2000
RATE_BYTES_PER_S = 500_000
SIZE_BYTES = RECORDS * RECORD_BYTES
THROTTLE_KEYS = {
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
}


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[GregorCluster]:
    with GregorCluster(tmp_path, 3) as cluster:
        yield cluster


def throttles(admin: AdminClient) -> set[str]:
    """The keys about throttles that the topic or a broker has."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, TOPIC)]
    resources += [ConfigResource(ConfigResource.Type.BROKER, str(broker_id)) for broker_id in range(3)]
    found = set()
    for resource in resources:  # the client allows no more than one broker in a call
        for key, entry in admin.describe_configs([resource])[resource].result(WAIT_S).items():
            if key in THROTTLE_KEYS and not entry.is_default and entry.value:
                found.add(key)
    return found


def test_a_move_keeps_below_its_rate_and_loses_nothing(cluster: GregorCluster, tmp_path: pathlib.Path) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[0, 1]])])[TOPIC].result(WAIT_S)
    cluster.until_isr(TOPIC, [0, 1])
    # The leader moves meanwhile: records that are sent again stay in order, and come once.
    once = {"acks": "all", "enable.idempotence": True, "log_level": 0, "linger.ms": 2}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **once})
    refused: list[object] = []
    values = [os.urandom(RECORD_BYTES) for _ in range(RECORDS)]

    def produce(some: list[bytes]) -> None:
        for value in some:
            producer.produce(TOPIC, value, on_delivery=lambda error, _: error and refused.append(error))
        assert producer.flush(WAIT_S) == 0

    produce(values)
    plan = tmp_path / "plan.json"
    move = {"topic": TOPIC, "partition": 0, "replicas": [2, 1], "log_dirs": ["any", "any"]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    with KafkaTools() as tools:

        def run(*arguments: str) -> str:
            common = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan))
            said = tools.run(REASSIGN, *common, *arguments)
            assert said.code == 0, said
            return said.out + said.err

        begin_s = time.monotonic()
        started = run("--execute", "--throttle", str(RATE_BYTES_PER_S))
        assert "Successfully started partition reassignment" in started, started
        until(lambda: throttles(admin) == THROTTLE_KEYS, "the throttles are in force")
        said = run("--verify", "--preserve-throttles")
        assert "is still in progress" in said or not is_moving(cluster), "the tool has not seen the move"
        more = [b"%d" % number for number in range(100)]
        produce(more)
        cluster.until_isr(TOPIC, [2, 1])
        took_s = time.monotonic() - begin_s
        print(f"\n{SIZE_BYTES} bytes moved in {took_s:.1f} s at {RATE_BYTES_PER_S} a second")
        assert took_s > 0.8 * SIZE_BYTES / RATE_BYTES_PER_S, "faster than the rate allows"

        def is_done() -> bool:
            said = run("--verify")
            return "is completed" in said and "is still in progress" not in said

        until(is_done, "the tool says that it is done")
        until(lambda: throttles(admin) == set(), "the tool has taken the throttles away")
    assert cluster.until_led(TOPIC, not_by=0) in (1, 2)
    assert refused == []
    assert read(cluster) == [*values, *more]
    until(lambda: not list((tmp_path / "broker-0" / "data").glob(f"{TOPIC}-0/*.log")), "the old replica is gone")


def is_moving(cluster: GregorCluster) -> bool:
    return bool(json.loads(cluster.nodes.get(nodes.topic_path(TOPIC))[0]).get("adding_replicas"))


def read(cluster: GregorCluster) -> list[bytes | None]:
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "log_level": 0}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes | None] = []

    def is_read() -> bool:
        found.extend(one.value() for one in consumer.consume(500, 0.2) if one.error() is None)
        return len(found) >= RECORDS + 100

    try:
        until(is_read, "every record")
    finally:
        consumer.close()
    return found
