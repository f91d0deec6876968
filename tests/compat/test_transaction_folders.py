"""A data folder with open, committed and aborted transactions goes from Apache Kafka 3.9.1 to gregor and back."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from tests.compat.confluent import read_to_end, reading
from tests.compat.records import WAIT_S, until
from tests.storage.test_dump_log import DUMP
from tests.support.apache_kafka import ApacheKafka, ZooKeeper
from tests.support.kafka_tools import KafkaTools
from tests.support.processes import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow, pytest.mark.by_day(1)]

TOPIC = "mixed"
GROUP = "group"
SETTINGS = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    "zookeeper.session.timeout.ms": "6000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT = 1, 4, 5
LONG_MS, SHORT_MS = 600_000, 6_000
ABORTED = 40
"""Records of an aborted transaction: with 500 bytes each, a segment rolls within it."""


class Client:
    """Transactions on a broker, of either kind. A producer that leaves its transaction open is kept, not closed."""

    def __init__(self, bootstrap: str) -> None:
        self.settings = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.admin = AdminClient(self.settings)
        self._open: list[Producer] = []

    def begin(self, name: str, timeout_ms: int, values: Sequence[str], offset: int | None = None) -> Producer:
        """Begin a transaction with records and, where one is given, an offset of the group."""
        settings = {
            **self.settings,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
            "batch.num.messages": 10,
        }
        producer = Producer(settings)
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(TOPIC, value.ljust(500), partition=0)
        assert producer.flush(WAIT_S) == 0
        if offset is not None:
            consumer = Consumer({**self.settings, "group.id": GROUP})
            group = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, offset)], group, WAIT_S)
            consumer.close()
        self._open.append(producer)
        return producer

    def commit(self, name: str, values: Sequence[str], offset: int | None = None) -> None:
        self.begin(name, LONG_MS, values, offset).commit_transaction(WAIT_S)

    def abort(self, name: str, values: Sequence[str], offset: int | None = None) -> None:
        self.begin(name, LONG_MS, values, offset).abort_transaction(WAIT_S)

    def fence(self, name: str) -> None:
        """End the transaction that another producer with this transactional id left open."""
        Producer({**self.settings, "transactional.id": name}).init_transactions(WAIT_S)

    def visible(self, isolation: str = "read_committed") -> list[str]:
        consumer = reading(self.settings["bootstrap.servers"], **{"isolation.level": isolation})
        try:
            values = [message.value() for message in read_to_end(consumer, TOPIC, 0)]
        finally:
            consumer.close()
        return [value.decode().strip() for value in values if value is not None]

    def until_visible(self, values: list[str]) -> None:
        """Wait until exactly these are visible, and nothing else before: a broker answers a commit before it writes the
        markers (KIP-98)."""

        def all_visible() -> bool:
            found = self.visible()
            assert found == values[: len(found)]
            return len(found) == len(values)

        until(all_visible, f"the visible records {values}")

    def knows_topic(self) -> bool:
        """Whether the broker knows the topic and its leader. A topic that it does not know is in the list, with an
        error."""
        found = self.admin.list_topics(TOPIC, WAIT_S).topics[TOPIC]
        return found.error is None and [part.leader for part in found.partitions.values()] == [0]

    def committed(self, stable: bool = True) -> int:
        """Return the group's offset. Raises KafkaException while a transaction has one pending and `stable` is set."""
        request = [ConsumerGroupTopicPartitions(GROUP, [TopicPartition(TOPIC, 0)])]
        limit_s = 3 if stable else WAIT_S
        found = self.admin.list_consumer_group_offsets(request, require_stable=stable, request_timeout=limit_s)
        [part] = found[GROUP].result(2 * WAIT_S).topic_partitions
        if part.error is not None:
            raise KafkaException(part.error)
        return int(part.offset)

    def has_committed(self, offset: int, stable: bool = True) -> bool:
        """Whether this is the group's offset and, with `stable`, none is pending; False while the coordinator loads."""
        try:
            return self.committed(stable) == offset
        except KafkaException:
            return False


def records(name: str, count: int = 10) -> list[str]:
    return [f"{name}-{number}" for number in range(count)]


@pytest.fixture(params=["zookeeper", "kraft"])
def zookeeper(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[ZooKeeper | None]:
    server = ZooKeeper(tmp_path) if request.param == "zookeeper" else None
    yield server
    if server is not None:
        server.kill()


def fill(client: Client) -> None:
    """Committed, aborted, and two open ones: one whose timeout is long, one whose timeout passes soon."""
    client.admin.create_topics([NewTopic(TOPIC, 1, 1, config={"segment.bytes": "20000"})])[TOPIC].result(WAIT_S)
    until(client.knows_topic, "the topic")
    # librdkafka's search for a coordinator may stand still until the request, or the transaction, times out when Apache
    # Kafka makes __consumer_offsets meanwhile. A request has a short timeout, and is repeated.
    until(lambda: client.has_committed(OFFSET_INVALID), "the group's coordinator")
    client.commit("kafka", records("first"), 5)
    client.abort("kafka", records("undone", ABORTED), 6)
    client.commit("kafka", records("second"))
    client.begin("left-long", LONG_MS, records("left-long"), 7)
    client.begin("left-short", SHORT_MS, records("left-short"))
    client.commit("kafka", records("behind"))


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_folder_goes_there_and_back(zookeeper: ZooKeeper | None, tmp_path: pathlib.Path, end: str) -> None:
    data = tmp_path / "data"
    below, all_of_kafka = records("first") + records("second"), records("first") + records("second") + records("behind")
    kafka = ApacheKafka(tmp_path, data, zookeeper, 1, SETTINGS)
    try:
        client = Client(kafka.bootstrap)
        fill(client)
        assert client.visible() == below
        everything = client.visible("read_uncommitted")
        if end == "stopped":
            assert kafka.stop() in (0, 143)
    finally:
        kafka.kill()

    with BrokerProcess(tmp_path / "gregor", {**SETTINGS, "log.dirs": str(data), "broker.id": "0"}) as gregor:
        client = Client(gregor.bootstrap)
        until(client.knows_topic, "the adoption")
        assert client.visible("read_uncommitted") == everything
        assert client.visible() == below, "the open transaction of long timeout hides those behind it"
        until(lambda: client.has_committed(5, stable=False), "the committed offset")
        with pytest.raises(KafkaException):
            client.committed()
        client.fence("left-long")
        client.until_visible(all_of_kafka)
        until(lambda: client.has_committed(5), "the end of the pending offset")
        client.commit("kafka", records("third"), 8)
        client.abort("gregor", records("undone-by-gregor", ABORTED), 9)
        client.begin("left-by-gregor", LONG_MS, records("left-by-gregor"), 10)
        client.commit("gregor", records("behind-gregor"))
        here = all_of_kafka + records("third")
        client.until_visible(here)
        everything = client.visible("read_uncommitted")
        if end == "killed":
            gregor.kill()
    assert "ERROR" not in gregor.log(), gregor.log()
    check_files(data)

    wait_until_forgotten(zookeeper)
    kafka = ApacheKafka(tmp_path, data, zookeeper, 2, SETTINGS)
    try:
        client = Client(kafka.bootstrap)
        until(client.knows_topic, "the topic's return")
        assert client.visible("read_uncommitted") == everything
        assert client.visible() == here
        until(lambda: client.has_committed(8, stable=False), "the committed offset")
        client.fence("left-by-gregor")
        client.until_visible(here + records("behind-gregor"))
        until(lambda: client.has_committed(8), "the end of the pending offset")
        client.commit("gregor", records("last"), 11)
        client.until_visible(here + records("behind-gregor") + records("last"))
        until(lambda: client.has_committed(11), "the last offset")
        assert kafka.stop() in (0, 143)
        assert [line for line in kafka.complaints() if "ransaction" in line or "roducer" in line] == []
    finally:
        kafka.kill()


def wait_until_forgotten(zookeeper: ZooKeeper | None) -> None:
    """Apache Kafka does not start while its registration of before a crash is there."""
    if zookeeper is None:
        return
    store = KazooClient(f"127.0.0.1:{zookeeper.port}")
    store.start()
    try:
        until(lambda: store.exists("/brokers/ids/0") is None, "the end of the session")
    finally:
        store.stop()
        store.close()


def check_files(data: pathlib.Path) -> None:
    """Apache Kafka's reader of log files decodes the transactions and finds the indexes sound."""
    with KafkaTools() as tools:
        logs = sorted(path for path in data.glob("__transaction_state-*/*.log") if path.stat().st_size)
        said = tools.run(DUMP, "--transaction-log-decoder", "--files", ",".join(map(str, logs)))
        assert said.code == 0, said
        for name in ("kafka", "gregor", "left-by-gregor"):
            assert f'"transactionalId":"{name}"' in said.out, name
        for status in (ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT):
            assert f'"transactionStatus":{status}' in said.out, status
        assert said.out.count("payload: {") == said.out.count("| offset: "), "each record is decoded"
        indexes = [path for path in sorted(data.glob(f"{TOPIC}-0/*index")) if path.suffix != ".txnindex"]
        said = tools.run(DUMP, "--verify-index-only", "--files", ",".join(map(str, indexes)))
        assert said.code == 0 and "mismatch" not in (said.out + said.err).lower(), said
        aborted = sorted(data.glob(f"{TOPIC}-0/*.txnindex"))
        said = tools.run(DUMP, "--files", ",".join(map(str, aborted)))
        assert said.code == 0, said
        # undone and undone-by-gregor, left-long and left-short
        assert said.out.count("producerId") == 4, said.out
