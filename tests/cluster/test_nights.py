"""Bad nights of a cluster, each played with processes: `gregor doctor` names the cause, as in docs/operations.md.

Others are played elsewhere: a full disk, a certificate that ends soon and a client with a wrong secret
(tests/broker/cli/doctor/test_live_nights.py), a client that sends batches again which the broker has
(tests/broker/cli/doctor/test_retries.py), a transaction that hangs (tests/compat/test_kafka_transactions_command.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.broker.cli.doctor.retries import MIN_REPEATS
from gregor.broker.cli.doctor.thrashing import MIN_REBALANCES
from gregor.broker.launch.zookeeper_server import ZooKeeperMissing
from tests.broker.cli.tool import Tool
from tests.broker.metrics.scraped import Series, fetched, parsed
from tests.support.gregor_cluster import PATIENCE_S, GregorCluster
from tests.support.ports import free_port
from tests.support.repeating import repeating
from tests.support.zookeeper import ZooKeeperProcess

pytestmark = [pytest.mark.jvm, pytest.mark.very_slow, pytest.mark.by_day(3)]

BROKERS, SURVIVOR, VICTIM = 3, 0, 2
"""The victim is not the first that the command connects to."""
FETCH_BYTES = 100_000
SETTINGS = {
    "replica.fetch.max.bytes": str(FETCH_BYTES),
    "offsets.topic.replication.factor": str(BROKERS),
    "default.replication.factor": str(BROKERS),
}


class Night:
    """The cluster, the lines of the doctor, and the metrics of the survivor."""

    def __init__(self, cluster: GregorCluster, metrics: str) -> None:
        self.cluster = cluster
        self._metrics = metrics
        self.tool = Tool(cluster.bootstrap)

    def until_reported(self, *parts: str, options: Sequence[str] = ()) -> None:
        """Until one line of the doctor that is not ok has all parts."""
        seen = ""

        def reported() -> bool:
            nonlocal seen
            seen = self.lines(*options)
            return any(
                all(part in line for part in parts) for line in seen.splitlines() if line.startswith(("WRONG", "note"))
            )

        try:
            self.cluster.until(reported, f"the doctor reports {parts}")
        except AssertionError as error:
            raise AssertionError(f"{seen}\n{error}") from error

    def lines(self, *options: str) -> str:
        return doctor(self.cluster.bootstrap, *options)

    def series(self) -> Series:
        return parsed(fetched(f"http://{self._metrics}/metrics")[2])

    def create(self, topic: str, partitions: int, **config: str) -> str:
        """Create a topic; keys of its configuration have underscores here."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(topic, partitions, BROKERS, config=dotted)])[topic].result(PATIENCE_S)
        for index in range(partitions):
            self.cluster.until_isr(topic, range(BROKERS), index)
        return topic


def doctor(bootstrap: str, *options: str) -> str:
    """Return what the command prints, whether something is wrong or not."""
    process = Tool(bootstrap).start("doctor", *options)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode in (0, 1), out
    return out


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    try:
        cluster = GregorCluster(tmp_path_factory.mktemp("nights"), BROKERS, SETTINGS)
        metrics = f"127.0.0.1:{free_port()}"
        cluster.brokers[SURVIVOR].overrides["gregor.metrics.listener"] = metrics
        with cluster:
            yield Night(cluster, metrics)
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


def test_client_that_retries(night: Night, tmp_path: Path) -> None:
    cluster = night.cluster
    topic = night.create("short", 1, min_insync_replicas="2")
    others = sorted(cluster.brokers.keys() - {SURVIVOR})
    for broker_id in others:
        assert cluster.stop(broker_id) == 0
    quickly = {"retry.backoff.ms": 10, "retry.backoff.max.ms": 10}
    client = {"bootstrap.servers": cluster.bootstrap, "client.id": "patient", "log_level": 0}
    producer = Producer({**client, "acks": "all", **quickly})
    producer.produce(topic, b"waits")
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={cluster.brokers[SURVIVOR].folder / 'data'}\nbroker.id={SURVIVOR}\n")
    night.until_reported(
        "client 'patient' retries", "batches were refused with NOT_ENOUGH_REPLICAS", options=("--config", str(config))
    )
    refused = 'gregor_client_repeated_batches_total{client_id="patient",error="NOT_ENOUGH_REPLICAS"}'
    assert night.series()[refused] >= MIN_REPEATS
    for broker_id in others:
        cluster.start(broker_id)
    assert producer.flush(PATIENCE_S) == 0
    cluster.until_isr(topic, range(BROKERS))


def test_zookeeper_that_is_lost(night: Night) -> None:
    zookeeper = night.cluster.zookeeper
    assert isinstance(zookeeper, ZooKeeperProcess)
    zookeeper.kill()
    night.until_reported("ZooKeeper", zookeeper.connect, "does not answer")
