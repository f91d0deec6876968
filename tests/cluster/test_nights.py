"""Bad nights of a cluster, each played with processes: `gregor doctor` names the cause, as in docs/operations.md.

Others are played elsewhere: a full disk, a certificate that ends soon and a client with a wrong secret
(tests/broker/cli/doctor/test_live_nights.py), a client that retries (tests/broker/cli/doctor/test_retries.py), a
transaction that hangs (tests/compat/test_kafka_transactions_command.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.broker.cli.doctor.thrashing import MIN_REBALANCES
from gregor.broker.launch.zookeeper_server import ZooKeeperMissing
from tests.broker.cli.tool import Tool
from tests.support.gregor_cluster import PATIENCE_S, GregorCluster
from tests.support.repeating import repeating
from tests.support.zookeeper import ZooKeeperProcess

pytestmark = [pytest.mark.jvm, pytest.mark.very_slow]

BROKERS, VICTIM = 3, 2
"""The victim is not the first that the command connects to."""
FETCH_BYTES = 100_000
SETTINGS = {
    "replica.fetch.max.bytes": str(FETCH_BYTES),
    "offsets.topic.replication.factor": str(BROKERS),
    "default.replication.factor": str(BROKERS),
}


class Night:
    """The cluster, and the lines of the doctor."""

    def __init__(self, cluster: GregorCluster) -> None:
        self.cluster = cluster
        self.tool = Tool(cluster.bootstrap)

    def until_reported(self, *parts: str) -> None:
        """Until one line of the doctor that is not ok has all parts."""
        seen = ""

        def reported() -> bool:
            nonlocal seen
            seen = self.lines()
            return any(
                all(part in line for part in parts) for line in seen.splitlines() if line.startswith(("WRONG", "note"))
            )

        try:
            self.cluster.until(reported, f"the doctor reports {parts}")
        except AssertionError as error:
            raise AssertionError(f"{seen}\n{error}") from error

    def lines(self) -> str:
        return doctor(self.cluster.bootstrap)

    def create(self, topic: str, partitions: int) -> str:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        admin.create_topics([NewTopic(topic, partitions, BROKERS)])[topic].result(PATIENCE_S)
        for index in range(partitions):
            self.cluster.until_isr(topic, range(BROKERS), index)
        return topic


def doctor(bootstrap: str) -> str:
    """Return what the command prints, whether something is wrong or not."""
    process = Tool(bootstrap).start("doctor")
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode in (0, 1), out
    return out


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    try:
        with GregorCluster(tmp_path_factory.mktemp("nights"), BROKERS, SETTINGS) as cluster:
            yield Night(cluster)
    except ZooKeeperMissing as error:
        pytest.skip(str(error))


@contextmanager
def sending(bootstrap: str, topic: str, partition: int) -> Iterator[None]:
    """Send 10 KB each 5 ms."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})

    def send() -> None:
        producer.produce(topic, bytes(10_000), partition=partition)
        producer.poll(0)

    with repeating(send, 0.005):
        yield
    producer.flush(PATIENCE_S)


def test_hot_partition(night: Night) -> None:
    topic = night.create("hot", 3)
    leader = night.cluster.until_led(topic, 1)
    with sending(night.cluster.bootstrap, topic, 1):
        night.until_reported(f"partition {topic}-1 is hot", f"by broker {leader}")


def join_and_leave(night: Night, topic: str, settings: dict[str, str]) -> None:
    consumer = Consumer(dict(settings))
    consumer.subscribe([topic])

    def joined() -> bool:
        consumer.poll(0.05)
        return bool(consumer.assignment())

    night.cluster.until(joined, "the consumer has joined")
    consumer.close()


def test_group_that_thrashes(night: Night) -> None:
    topic = night.create("thrashed", 1)
    settings = {"bootstrap.servers": night.cluster.bootstrap, "group.id": "restless", "client.id": "flapper"}
    for _ in range(MIN_REBALANCES):
        join_and_leave(night, topic, settings)
    night.until_reported("group 'restless' thrashes", "'member joined' of client 'flapper' at 127.0.0.1")


def test_broker_that_is_killed(night: Night) -> None:
    topic = night.create("killed", 1)
    night.cluster.kill(VICTIM)
    night.until_reported(f"broker {VICTIM} is not in the cluster, and has replicas of")
    night.cluster.start(VICTIM)
    night.cluster.until_isr(topic, range(BROKERS))


def test_broker_that_is_frozen(night: Night) -> None:
    topic = night.create("frozen", 1)
    night.cluster.suspend(VICTIM)
    night.cluster.until(lambda: VICTIM not in night.cluster.registered(), "its session ends")
    night.until_reported(f"broker {VICTIM} is not in the cluster, and has replicas of")
    # That of a killed one does not accept connections.
    assert f"{night.cluster.brokers[VICTIM].bootstrap} accepts connections" in night.lines()
    night.cluster.resume(VICTIM)
    night.cluster.until_isr(topic, range(BROKERS))


def test_follower_that_does_not_keep_up(night: Night) -> None:
    topic = night.create("late", 1)
    assert night.cluster.stop(VICTIM) == 0
    of_topic = ("configs", "--alter", "--topic", topic)
    of_brokers = ("configs", "--alter", "--broker-defaults")
    throttled, rate = "follower.replication.throttled.replicas", "follower.replication.throttled.rate"
    night.tool.run(*of_topic, "--add-config", f"{throttled}=*")
    night.tool.run(*of_brokers, "--add-config", f"{rate}=1")
    producer = Producer({"bootstrap.servers": night.cluster.bootstrap})
    for _ in range(10):
        producer.produce(topic, bytes(FETCH_BYTES))
    assert producer.flush(PATIENCE_S) == 0
    night.cluster.start(VICTIM)
    night.until_reported(f"broker {VICTIM} is up", f"({topic}-0) do not keep up with the leaders")
    night.tool.run(*of_brokers, "--delete-config", rate)
    night.cluster.until_isr(topic, range(BROKERS))


def test_zookeeper_that_is_lost(night: Night) -> None:
    zookeeper = night.cluster.zookeeper
    assert isinstance(zookeeper, ZooKeeperProcess)
    zookeeper.kill()
    night.until_reported("ZooKeeper", zookeeper.connect, "does not answer")
