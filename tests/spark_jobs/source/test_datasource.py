"""`format("gregor")` beside Spark's Kafka connector: row for row the same, in batches and streams."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from gregor.protocol.topic_partition import TopicPartition
from tests.spark_jobs.arrow.stopped_broker import folder_of_stopped_broker
from tests.spark_jobs.client.test_offsets import committed
from tests.spark_jobs.topics import CLIENT_S, Topics
from tests.support.gregor_cluster import until
from tests.support.processes import ROOT, BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.compat]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MODES = ("wire", "files")
Rows = list[tuple[Any, ...]]


def read(spark: Any, source: str, bootstrap: str, topics: Iterable[str], **options: str) -> Any:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": ",".join(topics), "includeHeaders": "true", **options}
    given["kafka.fetch.max.wait.ms"] = "20"  # for which the connector waits at the end of each partition
    return spark.read.format(source).options(**given).load()


def rows_of(frame: Any) -> Rows:
    """Return the rows in the order of topic, partition and offset."""
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: row[2:5])


def produce(bootstrap: str, topic: str, values: Iterable[str], **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, **settings})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2, timestamp=1_700_000_000_000 + number)
    assert producer.flush(CLIENT_S) == 0


def transactions(bootstrap: str, topic: str) -> None:
    """Write a committed and an aborted transaction, and records outside of them; end with a marker."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"of-{topic}"})
    producer.init_transactions(CLIENT_S)
    for text, end in (("kept", producer.commit_transaction), ("dropped", producer.abort_transaction)) * 2:
        producer.begin_transaction()
        for number in range(10):
            producer.produce(topic, f"{text} {number}", partition=number % 2)
        assert producer.flush(CLIENT_S) == 0
        end(CLIENT_S)
        produce(bootstrap, topic, [f"after {text}"])


def compacted(topics: Topics, broker: BrokerProcess) -> str:
    topic = topics.create(1, "compacted", {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"})
    for number in range(60):
        topics.produce(topic, [f"value {number}"] if number % 7 else [None], 0, f"key {number % 5}")
    command = [sys.executable, "-m", "gregor.broker", "compact", "--topic", topic]
    done = subprocess.run(
        [*command, "--data-dir", str(broker.folder / "data")], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return topic


def deleted_at_the_start(topics: Topics) -> str:
    from confluent_kafka import TopicPartition as At

    topic = topics.create(prefix="gapped")
    for number in range(6):
        produce(topics.bootstrap, topic, [f"{number} a", f"{number} b"], **{"compression.type": "lz4"})
    admin = AdminClient({"bootstrap.servers": topics.bootstrap})
    for future in admin.delete_records([At(topic, 0, 4)]).values():
        future.result(CLIENT_S)
    return topic


@pytest.fixture(scope="module")
def many(topics: Topics, broker: BrokerProcess) -> list[str]:
    """Topics of all kinds of records."""
    plain = topics.create(prefix="plain")
    topics.produce(plain, ["a", "", None, b"\x00\xff", "b"], 0)
    topics.produce(plain, ["c", None], 1, "k", [("h", b"1"), ("h", None), ("i", "\u00e9"), ("", b"")], 1)
    coded = topics.create(prefix="coded")
    for codec in CODECS:
        produce(topics.bootstrap, coded, [f"{codec} {number}" for number in range(50)], **{"compression.type": codec})
    transactional = topics.create(prefix="transactional")
    transactions(topics.bootstrap, transactional)
    logged = topics.create(prefix="logged", config={"message.timestamp.type": "LogAppendTime"})
    topics.produce(logged, ["x", "y"])
    return [
        plain,
        coded,
        transactional,
        logged,
        topics.create(),
        compacted(topics, broker),
        deleted_at_the_start(topics),
    ]


@pytest.mark.very_slow
def test_schema_and_rows_are_those_of_the_connector(spark: Any, topics: Topics, many: list[str]) -> None:
    theirs = read(spark, "kafka", topics.bootstrap, many)
    expected = rows_of(theirs)
    assert {row[2] for row in expected} == {*many} - {many[4]}
    committed_only = {"kafka.isolation.level": "read_committed"}
    committed_rows = rows_of(read(spark, "kafka", topics.bootstrap, [many[2]], **committed_only))
    assert committed_rows == [row for row in expected if row[2] == many[2] and not row[1].startswith(b"dropped")]
    for mode in MODES:
        ours = read(spark, "gregor", topics.bootstrap, many, mode=mode)
        assert ours.schema == theirs.schema
        assert rows_of(ours) == expected, mode
        assert rows_of(read(spark, "gregor", topics.bootstrap, [many[2]], mode=mode, **committed_only)) == (
            committed_rows
        ), mode


@pytest.mark.very_slow
def test_streams_have_the_rows_of_the_connector(
    spark: Any, topics: Topics, many: list[str], tmp_path: pathlib.Path
) -> None:
    """Of all kinds of records, with what is there at the start of the query (the trigger available-now)."""
    rows: dict[str, Rows] = {}
    for source, more in (("kafka", {}), *(("gregor", {"mode": mode}) for mode in MODES)):
        name = more.get("mode", source)
        options = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": ",".join(many), **more}
        options |= {"startingOffsets": "earliest", "includeHeaders": "true", "kafka.isolation.level": "read_committed"}
        stream = spark.readStream.format(source).options(**options).load()
        found: Rows = []
        query = stream.writeStream.foreachBatch(lambda batch, _, found=found: found.extend(rows_of(batch)))
        query = query.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / name)).start()
        assert query.awaitTermination(CLIENT_S)
        rows[name] = sorted(found, key=lambda row: row[2:5])
    assert {row[2] for row in rows["kafka"]} == {*many} - {many[4]}
    assert rows["wire"] == rows["kafka"]
    assert rows["files"] == rows["kafka"]


@pytest.mark.very_slow
def test_tasks_and_filters(spark: Any, topics: Topics, many: list[str], pushdown: None) -> None:
    options = {"minPartitions": "7", "maxRecordsPerPartition": "60"}
    ours, theirs = (read(spark, source, topics.bootstrap, many[:3], **options) for source in ("gregor", "kafka"))
    assert ours.rdd.getNumPartitions() == theirs.rdd.getNumPartitions()
    condition = "partition = 1 and offset >= 20 and offset < 90 and timestamp > timestamp_millis(1700000000030)"
    filtered = read(spark, "gregor", topics.bootstrap, [many[1]]).where(condition)
    found = rows_of(filtered)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        filtered.explain()
    plan = printed.getvalue()
    assert not [line for line in plan.splitlines() if "Filter" in line.split("#")[0] and "partition#" in line]
    assert found == rows_of(read(spark, "kafka", topics.bootstrap, [many[1]]).where(condition))
    assert found


@pytest.fixture
def pushdown(spark: Any) -> Iterator[None]:
    """Filters are pushed down, which Spark does not do by default."""
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


FILTERS = (
    "key is null and value is not null",
    "key = X'6B' or value = X'61'",
    "headers is not null and topic like 'plain%'",
    "partition in (1, 2) and offset != 3 and not (offset between 5 and 9)",
    "timestamp >= timestamp '2023-11-14 22:13:20.040+00:00' and timestampType = 0",
    "cast(value as string) rlike '^gzip 1' and length(value) > 6",
    "offset <=> 4 and cast(partition as string) = '0'",
)
"""Of all kinds that Spark pushes down, and of those that it does not."""


@pytest.mark.very_slow
def test_rows_of_each_kind_of_filter(spark: Any, topics: Topics, many: list[str], pushdown: None) -> None:
    """Each filter has a DataFrame of its own: Spark's plan of a source in Python belongs to the DataFrame, so that a
    second query on one has the rows that the first one has left (4.1.1 and 4.2.0)."""

    def of(source: str) -> Rows:
        frames = [read(spark, source, topics.bootstrap, many[:2]).where(one) for one in FILTERS]
        return rows_of(functools.reduce(lambda one, other: one.union(other), frames))

    expected = of("kafka")
    assert len(expected) > len(FILTERS)
    assert of("gregor") == expected
    frame = read(spark, "gregor", topics.bootstrap, [many[1]])
    assert frame.where("offset < 2").count() == 4
    assert frame.count() == 4, "Spark has mended it: filters can be pushed down by default, see docs/spark-source.md"


Row = tuple[int, int, str]


class Query:
    """A stream of a topic: the rows of each batch, in `batches`. A repeated batch replaces its first attempt."""

    def __init__(
        self, spark: Any, given: dict[str, str], checkpoint: pathlib.Path, batches: dict[int, list[Row]]
    ) -> None:
        frame = spark.readStream.format("gregor").options(**given).load()
        self._batches = batches
        self._query = frame.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(checkpoint)).start()

    def _keep(self, batch: Any, batch_id: int) -> None:
        self._batches[batch_id] = [(row.partition, row.offset, row.value.decode()) for row in batch.collect()]

    @property
    def rows(self) -> list[Row]:
        """Return all rows, sorted."""
        return sorted(row for rows in list(self._batches.values()) for row in rows)

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *error: object) -> None:
        self._query.stop()

    def until(self, holds: Callable[[], bool], what: str) -> None:
        def holds_or_fails() -> bool:
            failure = self._query.exception()
            if failure is not None:
                raise failure
            return holds()

        until(holds_or_fails, what)


def in_turns(first: int, count: int) -> list[Row]:
    """Return the rows of `count` values that go to two partitions by turns."""
    return [(number % 2, number // 2, f"value {number}") for number in range(first, first + count)]


@pytest.mark.very_slow
def test_a_stream_with_restart_growth_and_a_topic_that_is_made_again(
    spark: Any, topics: Topics, tmp_path: pathlib.Path
) -> None:
    topic, checkpoint = topics.create(prefix="streamed"), tmp_path / "checkpoint"
    admin = AdminClient({"bootstrap.servers": topics.bootstrap})
    group = f"lag-of-{topic}"
    options = {
        **{"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, "startingOffsets": "earliest"},
        **{"failOnDataLoss": "false", "maxOffsetsPerTrigger": "4", "kafka.group.id": group},
    }
    batches: dict[int, list[Row]] = {}
    topics.produce(topic, [f"value {number}" for number in range(10)])
    with Query(spark, options, checkpoint, batches) as query:
        query.until(lambda: len(query.rows) >= 10, "all records were read")
        assert query.rows == sorted(in_turns(0, 10))
        assert [len(rows) for rows in batches.values()] == [4, 4, 2]
        topics.produce(topic, [f"value {number}" for number in range(10, 14)])
        query.until(lambda: len(query.rows) >= 14, "the next records were read")
    topics.produce(topic, [f"value {number}" for number in range(14, 16)])
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(CLIENT_S)
    topics.produce(topic, ["new"], 2)
    with Query(spark, options, checkpoint, batches) as query:
        query.until(lambda: len(query.rows) >= 17, "the restarted query has read what came in between")
        first = sorted([*in_turns(0, 16), (2, 0, "new")])
        assert query.rows == first
        assert committed(topics.bootstrap, group, TopicPartition(topic, 0)) >= 5
        admin.delete_topics([topic])[topic].result(CLIENT_S)
        until(lambda: topic not in admin.list_topics(timeout=CLIENT_S).topics, "the topic is deleted")
        config = {"retention.ms": "-1"}
        admin.create_topics([NewTopic(topic, 2, 1, config=config)])[topic].result(CLIENT_S)
        topics.produce(topic, [f"again {number}" for number in range(20)])
        query.until(lambda: len(query.rows) >= 37, "the new topic was read")
        again = [(number % 2, number // 2, f"again {number}") for number in range(20)]
        assert query.rows == sorted([*first, *again])
    last = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))[-1].read_text()
    assert json.loads(last.splitlines()[-1])[topic] == {"0": 10, "1": 10}


def test_rows_of_one_topic_and_wrong_options(spark: Any, topics: Topics) -> None:
    from gregor.spark_jobs.datasource import GregorDataSource

    if not spark.version.startswith("4.0."):  # refuses a source that it has found by itself already
        spark.dataSource.register(GregorDataSource)  # as programs do where Spark does not find it by itself
    topic = topics.create(1)
    topics.produce(topic, ["a", None, b"\x00\xff"], 0, "k", [("h", b"1"), ("h", None)], 1)
    assert rows_of(read(spark, "gregor", topics.bootstrap, [topic])) == rows_of(
        read(spark, "kafka", topics.bootstrap, [topic])
    )
    with pytest.raises(Exception, match="exactly one of the options subscribe, subscribePattern, assign"):
        read(spark, "gregor", topics.bootstrap, ["x"], assign='{"x":[0]}')
    with pytest.raises(Exception, match="the topic 'no-such-topic' does not exist"):
        read(spark, "gregor", topics.bootstrap, ["no-such-topic"], **{"fetchOffset.retryIntervalMs": "1"}).collect()


def test_the_folder_of_a_stopped_broker_is_a_batch(spark: Any, tmp_path: pathlib.Path) -> None:
    rows = spark.read.format("gregor").option("subscribe", "orders").load(str(folder_of_stopped_broker(tmp_path)))
    assert [(row.offset, bytes(row.key)) for row in rows.orderBy("offset").collect()] == [
        *((0, b"a"), (1, b"b"), (2, b"c"), (3, b"c"), (4, b"c"), (6, b"d"), (7, b"e"))
    ]
