"""The client and the source on Apache Kafka: today's, and one from before most of today's versions of requests."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.source.batch import plan_batch
from gregor.spark_jobs.source.filters import Pushed
from gregor.spark_jobs.source.options import SourceOptions
from gregor.spark_jobs.source.stream import Stream
from tests.spark_jobs.client.test_offsets import committed
from tests.spark_jobs.topics import CLIENT_S
from tests.support.kafka import kafka_jars
from tests.support.kafka_peer import SINGLE_NODE, KafkaPeer
from tests.support.kafka_process import SMALL_JVM
from tests.support.processes import BrokerProcess, free_port
from tests.support.zookeeper import ZooKeeperProcess

pytestmark = [pytest.mark.very_slow, pytest.mark.jvm, pytest.mark.compat]

OLD = "1.1.1"


class OldKafka(BrokerProcess):
    """Apache Kafka 1.1.1 on a ZooKeeper."""

    start_timeout_s = 240.0
    stop_timeout_s = 180.0

    def command(self) -> list[str]:
        settings = self.folder / "kafka.properties"
        settings.write_text("".join(f"{key}={value}\n" for key, value in self.overrides.items()))
        return ["java", *SMALL_JVM, "-cp", f"{kafka_jars(OLD)}/*", "kafka.Kafka", str(settings)]


@pytest.fixture(params=["4.3.1", OLD])
def kafka(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[str]:
    """The address of a broker."""
    if request.param == OLD:
        with ZooKeeperProcess(tmp_path / "zookeeper") as zookeeper:
            settings = {"zookeeper.connect": zookeeper.connect, "broker.id": "0"}
            copies = {"offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1"}
            with OldKafka(tmp_path / "kafka", {**settings, **copies, "transaction.state.log.min.isr": "1"}) as old:
                yield old.bootstrap
        return
    port = free_port()
    folder = tmp_path / "kafka"
    folder.mkdir()
    file = folder / "server.properties"
    file.write_text(
        SINGLE_NODE.format(port=port, controller=free_port(), folder=folder)
        + "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
    )
    with KafkaPeer(file, port):
        yield f"127.0.0.1:{port}"


def values_of(cluster: Cluster, options: SourceOptions) -> list[bytes]:
    from gregor.spark_jobs.arrow.reader import read

    plans = plan_batch(cluster, options, Pushed())
    return sorted(value for plan in plans for batch in read(plan) for value in batch.column("value").to_pylist())


def test_batches_positions_and_commits(kafka: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(CLIENT_S)
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": "x", "compression.type": "lz4"})
    producer.init_transactions(CLIENT_S)
    for text, end in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
        producer.begin_transaction()
        for number in range(20):
            producer.produce("t", b"%s %02d" % (text, number), partition=number % 2)
        assert producer.flush(CLIENT_S) == 0
        end(CLIENT_S)
    given = {"kafka.bootstrap.servers": kafka, "subscribe": "t", "kafka.group.id": "g", "mode": "wire"}
    kept = [b"kept %02d" % number for number in range(20)]
    with Cluster(SourceOptions.from_options(given, False).settings) as cluster:
        everything = values_of(cluster, SourceOptions.from_options(given, False))
        assert everything == [*(b"dropped %02d" % number for number in range(20)), *kept]
        committed_only = {**given, "kafka.isolation.level": "read_committed"}
        assert values_of(cluster, SourceOptions.from_options(committed_only, False)) == kept
        stream = Stream(cluster, SourceOptions.from_options({**given, "startingOffsets": "earliest"}, True), lambda: 0)
        start = stream.initial()
        end_position = stream.latest(start)
        assert [plan.range.end_offset for plan in stream.plan(start, end_position)] == [22, 22]
        stream.commit(end_position)
    assert committed(kafka, "g", TopicPartition("t", 1)) == 22
