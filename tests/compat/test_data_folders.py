"""A data folder goes from Apache Kafka 3.9.1 to gregor and back, and everything in it is there on either side."""

from __future__ import annotations

import pathlib
import random
import re
from collections.abc import Iterator

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.compat.confluent import commit_offsets
from tests.compat.records import WAIT_S, until
from tests.support.apache_kafka import ApacheKafka, ZooKeeper
from tests.support.processes import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow, pytest.mark.by_day(1)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = 7

# Warnings of the controller at any start: its own broker is not up yet, and there is no ZooKeeper to migrate from. The
# others are of slow machines, whose sessions end.
HARMLESS = re.compile(
    r"WARN (NetworkClient|RequestSendThread) .*[Cc]ontroller|WARN QuorumController .*ZK migration"
    r"|\w+ .*([Ss]low |timed out|took longer|[Ss]ession expired|SessionExpired)|WARN ClientCnxn "
)

Record = tuple[int, int, bytes | None, bytes | None]
Contents = dict[str, list[Record]]


class Client:
    """The operations of the test on a broker, of either kind."""

    def __init__(self, bootstrap: str) -> None:
        self.settings = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.admin = AdminClient(self.settings)

    def create(self, *topics: NewTopic) -> None:
        for future in self.admin.create_topics(list(topics)).values():
            future.result(WAIT_S)

    def fill(self, label: str) -> None:
        """More records in all codecs, so that segments roll; few keys in the compacted topic."""
        dice = random.Random(label)
        for codec in CODECS:
            producer = Producer(
                {**self.settings, "enable.idempotence": True, "compression.type": codec, "batch.num.messages": 10}
            )
            for number in range(60):
                value = b"%s %d " % (label.encode(), number) + dice.randbytes(300)
                producer.produce("plain", value, b"key-%d" % number, partition=number % 3)
                producer.produce("compacted", value, b"key-%d" % (number % KEYS))
                if number % 10 == 9:
                    assert producer.flush(WAIT_S) == 0

    def contents(self) -> Contents:
        """All records: (partition, offset, key, value) by topic."""
        consumer = Consumer({**self.settings, "group.id": "reader", "enable.auto.commit": False})
        found: Contents = {}
        for topic, count in (("plain", 3), ("compacted", 1)):
            parts = [TopicPartition(topic, index, 0) for index in range(count)]
            ends = {index: consumer.get_watermark_offsets(parts[index], WAIT_S)[1] for index in range(count)}
            consumer.assign(parts)
            records: list[Record] = []
            reached = dict.fromkeys(ends, 0)
            while reached != ends:
                message = consumer.poll(WAIT_S)
                assert message is not None and message.error() is None, (topic, reached, ends)
                partition, offset = message.partition(), message.offset()
                assert partition is not None and offset is not None
                records.append((partition, offset, message.key(), message.value()))
                reached[partition] = offset + 1
            found[topic] = sorted(records, key=lambda record: record[:2])
        consumer.close()
        return found

    def commit(self, offset: int) -> None:
        consumer = Consumer({**self.settings, "group.id": "group", "enable.auto.commit": False})
        commit_offsets(consumer, [TopicPartition("plain", index, offset + index) for index in range(3)])
        consumer.close()

    def committed(self) -> list[int]:
        asked = [ConsumerGroupTopicPartitions("group")]
        (future,) = self.admin.list_consumer_group_offsets(asked).values()
        return [part.offset for part in sorted(future.result(WAIT_S).topic_partitions)]

    def until_committed(self, offsets: list[int]) -> None:
        """Wait for them: the coordinator of a broker that was started just now may still load the group."""

        def found() -> bool:
            try:
                return self.committed() == offsets
            except KafkaException:
                return False

        until(found, f"the committed offsets {offsets}")

    def cleanup_policy(self, topic: str) -> str | None:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        (future,) = self.admin.describe_configs([resource]).values()
        policy: str | None = future.result(WAIT_S)["cleanup.policy"].value
        return policy

    def topic_ids(self) -> dict[str, str]:
        """By name; empty while the broker does not know them all."""
        topics = self.admin.describe_topics(TopicCollection(["plain", "compacted"]))
        try:
            return {name: str(future.result(WAIT_S).topic_id) for name, future in topics.items()}
        except KafkaException:
            return {}


def last_values(records: list[Record]) -> dict[bytes | None, bytes | None]:
    return {key: value for _, _, key, value in records}


@pytest.fixture(params=["zookeeper", "kraft"])
def zookeeper(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[ZooKeeper | None]:
    server = ZooKeeper(tmp_path) if request.param == "zookeeper" else None
    yield server
    if server is not None:
        server.kill()


def test_a_data_folder_goes_there_and_back(zookeeper: ZooKeeper | None, tmp_path: pathlib.Path) -> None:
    data = tmp_path / "data"
    kafka = ApacheKafka(tmp_path, data, zookeeper, 1)
    try:
        client = Client(kafka.bootstrap)
        client.create(
            NewTopic("plain", 3, 1, config={"segment.bytes": "20000"}),
            NewTopic(
                "compacted",
                1,
                1,
                config={"cleanup.policy": "compact", "segment.bytes": "10000", "min.cleanable.dirty.ratio": "0.01"},
            ),
        )
        client.fill("first")
        client.commit(10)
        until(lambda: len(client.contents()["compacted"]) < 150, "compaction")
        ids = client.topic_ids()
        assert kafka.stop() in (0, 143)
    finally:
        kafka.kill()

    with BrokerProcess(tmp_path / "gregor", {"log.dirs": str(data), "broker.id": "0"}) as gregor:
        client = Client(gregor.bootstrap)
        until(lambda: client.topic_ids() == ids, "the adoption")
        found = client.contents()
        assert len(found["plain"]) == 300
        assert KEYS <= len(found["compacted"]) < 300
        client.until_committed([10, 11, 12])
        assert client.cleanup_policy("compacted") == "compact"
        client.fill("second")
        client.commit(20)
        written = client.contents()
        assert written["plain"] != found["plain"]
        assert [record for record in written["plain"] if record in found["plain"]] == found["plain"]
        assert last_values(written["compacted"]).keys() == last_values(found["compacted"]).keys()
    assert "ERROR" not in gregor.log(), gregor.log()

    kafka = ApacheKafka(tmp_path, data, zookeeper, 2)
    try:
        client = Client(kafka.bootstrap)
        until(lambda: client.topic_ids() == ids, "the topics' return")
        again = client.contents()
        assert again["plain"] == written["plain"]
        assert last_values(again["compacted"]) == last_values(written["compacted"])
        client.until_committed([20, 21, 22])
        client.fill("third")
        more = client.contents()["plain"]
        assert len(more) == len(written["plain"]) + 300
        assert [record for record in more if record in written["plain"]] == written["plain"]
        assert kafka.stop() in (0, 143)
        assert [line for line in kafka.complaints() if not HARMLESS.match(line)] == []
    finally:
        kafka.kill()
