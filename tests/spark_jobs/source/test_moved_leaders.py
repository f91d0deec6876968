"""The planner and the reader of `format("gregor")` on three brokers, while leaders move and a broker stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from typing import cast

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.protocol.messages import ElectLeadersRequest
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.arrow.plan import ReadPlan
from gregor.spark_jobs.arrow.reader import close_idle, read
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.source.offsets import StreamOffset
from gregor.spark_jobs.source.options import SourceOptions
from gregor.spark_jobs.source.stream import Stream
from tests.support.gregor_cluster import PATIENCE_S, GregorCluster
from tests.support.wire import ask

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.very_slow]

RECORDS = 60
PADDING = "x" * 2000
"""With max.partition.fetch.bytes below it each fetch has one batch of records."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GregorCluster]:
    with GregorCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def admin_of(cluster: GregorCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def create(cluster: GregorCluster, topic: str) -> None:
    admin = admin_of(cluster)  # a client that is gone fails its futures
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(PATIENCE_S)
    cluster.until_isr(topic, cluster.brokers)


def produce(cluster: GregorCluster, topic: str, first: int, count: int) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0}
    )
    for number in range(first, first + count):
        producer.produce(topic, f"{number} {PADDING}", partition=0)
        assert producer.flush(PATIENCE_S) == 0  # a batch of its own


def elect_preferred(cluster: GregorCluster, topic: str) -> None:
    wanted = ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[0])
    request = ElectLeadersRequest(topic_partitions=[wanted], timeout_ms=30_000)

    def elected() -> bool:
        controller = cluster.controller()
        if controller is None:
            return False
        response = ask(cluster.brokers[controller].port, request, 2)
        return response.error_code == 0

    cluster.until(elected, f"the controller has elected the preferred leader of {topic}-0")


def stream_of(client: Cluster, given: SourceOptions) -> Stream:
    return Stream(client, given, lambda: time.monotonic() * 1000)


def options(cluster: GregorCluster, topic: str, **given: str) -> SourceOptions:
    servers = {"kafka.bootstrap.servers": cluster.bootstrap, "kafka.max.partition.fetch.bytes": "1000"}
    return SourceOptions.from_options({**servers, "subscribe": topic, "mode": "wire", **given}, streaming=True)


class Rows:
    """The rows of a range, of which some are read at a time."""

    def __init__(self, plan: ReadPlan) -> None:
        self._batches = cast(Generator[pa.RecordBatch, None, None], read(plan))
        self.values: list[int] = []

    def read(self, count: int) -> None:
        """Read until there are so many rows, or until the end."""
        while len(self.values) < count:
            rows = next(self._batches, None)
            if rows is None:
                return
            self.values += [int(value.split()[0]) for value in rows["value"].to_pylist()]

    def close(self) -> None:
        """End the read where it is."""
        self._batches.close()


ReadRows = Callable[[ReadPlan], Rows]


@pytest.fixture
def rows_of() -> Iterator[ReadRows]:
    """Make the rows of a plan; the reads and their connections are closed behind the test."""
    made: list[Rows] = []

    def make(plan: ReadPlan) -> Rows:
        made.append(Rows(plan))
        return made[-1]

    yield make
    for rows in made:
        rows.close()
    close_idle()


def test_a_range_is_read_once_while_its_leader_stops_and_another_is_elected(
    cluster: GregorCluster, rows_of: ReadRows
) -> None:
    create(cluster, "moving")
    produce(cluster, "moving", 0, RECORDS)
    given = options(cluster, "moving", startingOffsets="earliest")
    first_leader = cluster.until_led("moving")
    with Cluster(given.settings) as client:
        stream = stream_of(client, given)
        start = stream.initial()
        end = stream.latest(start)
        [plan] = stream.plan(start, end)
        assert (plan.range.end_offset, plan.range.leader_hint) == (RECORDS, first_leader)
        rows = rows_of(plan)
        rows.read(10)
        cluster.stop(first_leader)
        second_leader = cluster.until_led("moving", not_by=first_leader)
        rows.read(20)
        produce(cluster, "moving", RECORDS, 3)
        later = stream.latest(end)
        [plan_of_later] = stream.plan(end, later)
        assert (plan_of_later.range.end_offset, plan_of_later.range.leader_hint) == (RECORDS + 3, second_leader)
        cluster.start(first_leader)
        cluster.until_isr("moving", cluster.brokers)
        rows.read(30)
        elect_preferred(cluster, "moving")
        assert cluster.until_led("moving", not_by=second_leader) == first_leader
        rows.read(RECORDS)
        assert rows.values == list(range(RECORDS))
        rows_of_later = rows_of(plan_of_later)  # its leader is another one by now
        rows_of_later.read(3)
        assert rows_of_later.values == [RECORDS, RECORDS + 1, RECORDS + 2]
        assert stream.latest(later) == later


def test_a_topic_that_is_made_again_under_a_reader_is_an_error_and_then_read_anew(
    cluster: GregorCluster, rows_of: ReadRows
) -> None:
    create(cluster, "again")
    produce(cluster, "again", 0, 20)
    given = options(cluster, "again", startingOffsets="earliest")
    lenient = options(cluster, "again", failOnDataLoss="false")
    with Cluster(given.settings) as client:
        stream = stream_of(client, given)
        start = stream.initial()
        end = stream.latest(start)
        rows = rows_of(stream.plan(start, end)[0])
        rows.read(5)
        admin = admin_of(cluster)
        admin.delete_topics(["again"])["again"].result(PATIENCE_S)
        cluster.until(lambda: cluster.partition("again") is None, "the topic is deleted")
        create(cluster, "again")
        produce(cluster, "again", 100, 30)
        with pytest.raises(JobError, match="deleted and made again"):
            rows.read(20)
        assert rows.values == list(range(len(rows.values)))
        newest = stream.latest(end)
        assert newest.id_of("again") != end.id_of("again")
        assert newest.offsets == {TopicPartition("again", 0): 30}
        with pytest.raises(JobError, match="'again' was deleted and created again"):
            stream.plan(end, newest)
        anew = rows_of(stream_of(client, lenient).plan(end, StreamOffset(newest.offsets, newest.topic_ids))[0])
        anew.read(30)
        assert anew.values == list(range(100, 130))
