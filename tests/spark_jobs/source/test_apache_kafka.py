"""The client and the source on Apache Kafka: the newest release, and an earlier one, which may lack most of today's
versions of requests. The earlier one is another on other days; `--every-case` runs all."""

from __future__ import annotations

import datetime
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.arrow.plan import Mode
from gregor.spark_jobs.arrow.topics import read_folder, read_topic
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.extent import extent_of
from gregor.spark_jobs.client.settings import ClientSettings
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.source.batch import plan_batch
from gregor.spark_jobs.source.filters import Pushed
from gregor.spark_jobs.source.options import SourceOptions
from gregor.spark_jobs.source.stream import Stream
from tests.spark_jobs.client.test_offsets import committed
from tests.spark_jobs.topics import CLIENT_S
from tests.support.gregor_cluster import until
from tests.support.jvm import class_path, small_jvm
from tests.support.kafka import kafka_jars
from tests.support.kafka_peer import SINGLE_NODE, KafkaPeer
from tests.support.processes import BrokerProcess, free_port
from tests.support.sampling import of_the_day
from tests.support.zookeeper import ZooKeeperProcess

pytestmark = [pytest.mark.very_slow, pytest.mark.jvm, pytest.mark.compat]

NEWEST = "4.3.1"
"""Of 4.4.0 no broker is published as jars."""
EARLIER = ("3.9.1", "1.1.1", "0.11.0.3")
ON_ZOOKEEPER = ("1.1.1", "0.11.0.3")
"""Their responses have no leader epochs."""
SEGMENT_BYTES = 300
"""A fetch of an earlier release returns one segment of several."""
MIN_SEGMENT_BYTES_OF_NEWEST = 1_048_576


class OldKafka(BrokerProcess):
    """A release of Apache Kafka on a ZooKeeper."""

    start_timeout_s = 240.0
    stop_timeout_s = 180.0

    def __init__(self, version: str, folder: pathlib.Path, overrides: dict[str, str]) -> None:
        super().__init__(folder, overrides)
        self._version = version

    def command(self) -> list[str]:
        settings = self.folder / "kafka.properties"
        settings.write_text("".join(f"{key}={value}\n" for key, value in self.overrides.items()))
        jars = kafka_jars(self._version)
        classes = os.pathsep.join([class_path([jars]), *map(str, self._removed_in_java_11())])
        return ["java", *small_jvm(jars), "-cp", classes, "kafka.Kafka", str(settings)]

    def _removed_in_java_11(self) -> list[pathlib.Path]:
        """Return the jar of javax.xml.bind for a release that needs it."""
        return [*kafka_jars("3.9.1").glob("jaxb-api-*.jar")] if self._version == "0.11.0.3" else []


class Kafka(NamedTuple):
    """A broker that runs, and its data folder; `stop` ends it with complete files and returns its exit code."""

    version: str
    bootstrap: str
    data: pathlib.Path
    stop: Callable[[], int]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give the newest release a case, and the earlier ones one together, whose name is the same on all days."""
    every = metafunc.config.getoption("--every-case")
    metafunc.parametrize("release", [NEWEST, *(EARLIER if every else ["earlier"])])


@pytest.fixture
def kafka(release: str, tmp_path: pathlib.Path, day: datetime.date) -> Iterator[Kafka]:
    [of_today] = of_the_day(EARLIER, 1, day)
    version = of_today if release == "earlier" else release
    if version in ON_ZOOKEEPER:
        with ZooKeeperProcess(tmp_path / "zookeeper") as zookeeper:
            settings = {"zookeeper.connect": zookeeper.connect, "broker.id": "0"}
            copies = {"offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1"}
            settings |= {**copies, "transaction.state.log.min.isr": "1"}
            with OldKafka(version, tmp_path / "kafka", settings) as old:
                yield Kafka(version, old.bootstrap, old.folder / "data", old.stop)
        return
    port = free_port()
    folder = tmp_path / "kafka"
    folder.mkdir()
    file = folder / "server.properties"
    file.write_text(
        SINGLE_NODE.format(port=port, controller=free_port(), folder=folder)
        + "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
    )
    with KafkaPeer(file, port, version=version) as peer:
        yield Kafka(version, f"127.0.0.1:{port}", folder / "data", peer.stop)


def values_of(cluster: Cluster, options: SourceOptions) -> list[bytes]:
    from gregor.spark_jobs.arrow.reader import read

    plans = plan_batch(cluster, options, Pushed())
    return sorted(value for plan in plans for batch in read(plan) for value in batch.column("value").to_pylist())


def produce_in_transactions(bootstrap: str) -> None:
    """Write the values `kept` in a committed transaction, then `dropped` in an aborted one, to two partitions.

    The coordinator responds before the last markers are in the partitions, which this waits for.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x", "compression.type": "lz4"})
    producer.init_transactions(CLIENT_S)
    for text, end in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
        producer.begin_transaction()
        for number in range(20):
            producer.produce(
                "t", b"%s %02d" % (text, number), b"k%d" % number, number % 2, headers=[("h", b"%d" % number)]
            )
        assert producer.flush(CLIENT_S) == 0
        end(CLIENT_S)
    with Cluster(ClientSettings.from_options({"kafka.bootstrap.servers": bootstrap})) as cluster:
        until(lambda: extent_of(cluster, "t").size == 2 * 22, "the markers were written")


def test_batches_positions_commits_and_files(kafka: Kafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    config = {"segment.bytes": str(MIN_SEGMENT_BYTES_OF_NEWEST if kafka.version == NEWEST else SEGMENT_BYTES)}
    admin.create_topics([NewTopic("t", 2, 1, config=config)])["t"].result(CLIENT_S)
    produce_in_transactions(kafka.bootstrap)
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "t", "kafka.group.id": "g", "mode": "wire"}
    kept = [b"kept %02d" % number for number in range(20)]
    everything = [*(b"dropped %02d" % number for number in range(20)), *kept]
    committed_only = {**given, "kafka.isolation.level": "read_committed"}
    with Cluster(SourceOptions.from_options(given, False).settings) as cluster:
        assert values_of(cluster, SourceOptions.from_options(given, False)) == everything
        assert values_of(cluster, SourceOptions.from_options(committed_only, False)) == kept
        stream = Stream(cluster, SourceOptions.from_options({**given, "startingOffsets": "earliest"}, True), lambda: 0)
        start = stream.initial()
        end_position = stream.latest(start)
        assert [plan.range.end_offset for plan in stream.plan(start, end_position)] == [22, 22]
        stream.commit(end_position)
    assert committed(kafka.bootstrap, "g", TopicPartition("t", 1)) == 22
    require_equal_files(kafka)


def require_equal_files(kafka: Kafka) -> None:
    """Compare the rows of the segment files, of the broker that runs and of the one that has stopped, with those of
    Fetch requests."""
    received = {committed_only: rows_of(kafka, "wire", committed_only) for committed_only in (False, True)}
    assert [len(rows) for rows in received.values()] == [40, 20]
    for committed_only, rows in received.items():
        if kafka.version in ON_ZOOKEEPER:
            with pytest.raises(JobError, match="returns no leader epochs"):
                rows_of(kafka, "files", committed_only)
        else:
            assert rows_of(kafka, "files", committed_only) == rows
    with pytest.raises(JobError, match="a broker uses the data folder"):
        read_folder(str(kafka.data), "t")
    kafka.stop()
    for committed_only, rows in received.items():
        stopped = read_folder(str(kafka.data), "t", include_headers=True, read_committed=committed_only)
        assert stopped.read_all().to_pylist() == rows


def rows_of(kafka: Kafka, mode: Mode, committed_only: bool) -> list[dict[str, Any]]:
    options = {"kafka.isolation.level": "read_committed" if committed_only else "read_uncommitted"}
    reader = read_topic(kafka.bootstrap, "t", mode=mode, include_headers=True, options=options)
    rows: list[dict[str, Any]] = reader.read_all().to_pylist()
    return rows
