"""Three brokers as processes, on a real ZooKeeper: what all in-sync replicas have acknowledged stays, whichever broker
stops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.gregor_cluster import PATIENCE_S, GregorCluster, until

pytestmark = [pytest.mark.jvm, pytest.mark.very_slow]

QUICK = {"replica.lag.time.max.ms": "1500", "replica.fetch.wait.max.ms": "200"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GregorCluster]:
    with GregorCluster(tmp_path_factory.mktemp("cluster"), 3, QUICK) as cluster:
        yield cluster


class Writer:
    """A producer that remembers what was acknowledged, and with which error what was not."""

    def __init__(self, cluster: GregorCluster, topic: str, first: int = 0, **settings: object) -> None:
        given = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
        self._producer = Producer({**given, **settings})
        self._topic = topic
        self._count = first
        self.acknowledged: list[bytes] = []
        self.errors: list[int] = []

    def write(self, count: int) -> None:
        for _ in range(count):
            value = b"%d" % self._count
            self._count += 1
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._told)
        assert self._producer.flush(2 * PATIENCE_S) == 0

    def _told(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self.errors.append(error.code())
        else:
            self.acknowledged.append(message.value())  # type: ignore[attr-defined]


def create(cluster: GregorCluster, topic: str, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = {key.replace("_", "."): value for key, value in settings.items()}
    for made in admin.create_topics([NewTopic(topic, 1, 3, config=config)]).values():
        made.result(PATIENCE_S)
    cluster.until_isr(topic, [0, 1, 2])


def contents(cluster: GregorCluster, topic: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        ended = False
        while not ended:
            for message in consumer.consume(10_000, 0.2):  # it waits for this many, or this time
                if message.error() is None:
                    found.append(message.value())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended = True
        return found
    finally:
        consumer.close()


def log_files(cluster: GregorCluster, topic: str) -> list[bytes]:
    """The log of each replica, byte for byte."""
    return [
        b"".join(file.read_bytes() for file in sorted((broker.folder / "data" / f"{topic}-0").glob("*.log")))
        for broker in cluster.brokers.values()
    ]


def same_everywhere(cluster: GregorCluster, topic: str) -> bool:
    first, *others = log_files(cluster, topic)
    return all(other == first for other in others)


def test_a_follower_that_stands_still_leaves_the_set_and_comes_back(cluster: GregorCluster) -> None:
    create(cluster, "still", min_insync_replicas="2")
    writer = Writer(cluster, "still", **{"enable.idempotence": True})
    writer.write(100)
    leader = cluster.until_led("still")
    asleep, awake = (number for number in range(3) if number != leader)
    cluster.suspend(asleep)
    try:
        writer.write(100)  # waits until the set is smaller
        cluster.until_isr("still", [leader, awake])
        writer.write(100)
    finally:
        cluster.resume(asleep)
    writer.write(1)
    cluster.until_isr("still", [0, 1, 2])
    writer.write(1)
    assert writer.errors == []
    assert contents(cluster, "still") == writer.acknowledged == [b"%d" % number for number in range(302)]
    until(lambda: same_everywhere(cluster, "still"), "all replicas have the same log")


def test_deleted_records_are_gone_everywhere_when_that_is_answered(cluster: GregorCluster) -> None:
    create(cluster, "deleted")
    Writer(cluster, "deleted").write(20)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for done in admin.delete_records([TopicPartition("deleted", 0, 15)]).values():
        assert done.result(PATIENCE_S).low_watermark == 15
    assert contents(cluster, "deleted") == [b"%d" % number for number in range(15, 20)]


def test_after_a_leader_is_killed_another_has_all_and_the_old_one_follows(cluster: GregorCluster) -> None:
    create(cluster, "killed", min_insync_replicas="2")
    writer = Writer(cluster, "killed", **{"enable.idempotence": True})
    for _ in range(2):
        writer.write(200)
        leader = cluster.until_led("killed")
        cluster.kill(leader)
        writer.write(200)
        assert cluster.until_led("killed", not_by=leader) != leader
        cluster.start(leader)
        cluster.until_isr("killed", [0, 1, 2])
    assert writer.errors == []
    assert contents(cluster, "killed") == writer.acknowledged == [b"%d" % number for number in range(800)]
    until(lambda: same_everywhere(cluster, "killed"), "all replicas have the same log")


def test_too_few_in_sync_replicas_refuse_records_with_all_acknowledgements(cluster: GregorCluster) -> None:
    create(cluster, "few", min_insync_replicas="3")
    writer = Writer(cluster, "few")
    writer.write(10)
    assert (len(writer.acknowledged), writer.errors) == (10, [])
    leader = cluster.until_led("few")
    killed = next(number for number in range(3) if number != leader)
    cluster.kill(killed)
    others = [number for number in range(3) if number != killed]
    cluster.until_isr("few", others)
    refused = Writer(cluster, "few", first=10, **{"message.timeout.ms": 4000})
    refused.write(1)
    # The leader learns a moment after ZooKeeper that its set is smaller.
    too_few = {KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
    assert set(refused.errors) <= {KafkaError._MSG_TIMED_OUT, *too_few}
    assert len(refused.errors) == 1
    one = Writer(cluster, "few", acks="1")
    one.write(5)
    assert one.errors == []
    # A record that is not on enough replicas is not committed, and no consumer gets it.
    assert contents(cluster, "few") == writer.acknowledged
    cluster.start(killed)
    cluster.until_isr("few", [0, 1, 2])

    def committed() -> list[bytes]:
        # The leader may have appended the unacknowledged record before it noticed that its follower is out of sync.
        return [value for value in contents(cluster, "few") if value != b"10"]

    until(lambda: committed() == writer.acknowledged + one.acknowledged, "what waited is committed")
