"""Options of Spark's official connector as a source, each in a test that fails without the option."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gregor.spark_jobs.sources import read_topic, stream_topic
from tests.spark_jobs.topics import CLIENT_S, Topics

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.compat, pytest.mark.by_day(4)]

EARLY_MS, LATE_MS = 1_700_000_000_000, 1_700_000_100_000
QUERY_S = 180
DEPRECATED = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"


def values_of(frame: DataFrame) -> list[str]:
    return sorted(row.text for row in frame.select(F.col("value").cast("string").alias("text")).collect())


def run_now(frame: DataFrame, checkpoint: Path) -> list[list[str]]:
    """Runs the stream over what is there now; the values of each batch that was not empty."""
    batches: list[list[str]] = []

    def keep(batch: Any, batch_id: int) -> None:
        batches.append(values_of(batch))

    query = (
        frame.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(QUERY_S), "the query did not end"
    finally:
        query.stop()
    return [batch for batch in batches if batch]


@contextmanager
def running(spark: SparkSession, frame: DataFrame, every: str | None = None) -> Iterator[Callable[[], list[str]]]:
    """Run the stream into a table of this process; yield a function that returns the values so far."""
    name = f"t{uuid.uuid4().hex}"
    writer = frame.writeStream.format("memory").queryName(name)
    query = (writer.trigger(processingTime=every) if every else writer).start()
    try:
        yield lambda: values_of(spark.table(name))
    finally:
        query.stop()


def until(told: Callable[[], list[str]], expected: list[str]) -> None:
    deadline = time.monotonic() + 180
    while told() != expected:
        assert time.monotonic() < deadline, told()
        time.sleep(0.1)


def offsets(topic: str, **by_partition: int) -> str:
    return f'{{"{topic}":{{' + ",".join(f'"{number[1:]}":{offset}' for number, offset in by_partition.items()) + "}}"


def fails_with(message: str, action: Callable[[], Any]) -> None:
    with pytest.raises(Exception) as raised:
        action()
    assert message in str(raised.value), str(raised.value)[:3000]


@pytest.fixture
def timed(topics: Topics) -> str:
    """A topic of one partition with four early records and three late ones."""
    topic = topics.create(1)
    topics.produce(topic, [f"early {number}" for number in range(4)], 0, timestamp_ms=EARLY_MS)
    topics.produce(topic, [f"late {number}" for number in range(3)], 0, timestamp_ms=LATE_MS)
    return topic


LATE = ["late 0", "late 1", "late 2"]


def test_ending_offsets_by_timestamp(spark: SparkSession, topics: Topics, timed: str) -> None:
    options = {"endingOffsetsByTimestamp": offsets(timed, p0=LATE_MS)}
    assert values_of(read_topic(spark, topics.bootstrap, timed, options)) == [f"early {n}" for n in range(4)]


def test_strategy_for_timestamps_after_the_last_record(spark: SparkSession, topics: Topics, timed: str) -> None:
    future = {"startingOffsetsByTimestamp": offsets(timed, p0=LATE_MS + 1)}
    fails_with("No offset matched from request", lambda: values_of(read_topic(spark, topics.bootstrap, timed, future)))
    latest = future | {"startingOffsetsByTimestampStrategy": "latest"}
    assert values_of(read_topic(spark, topics.bootstrap, timed, latest)) == []
    in_range = {"startingOffsetsByTimestamp": offsets(timed, p0=LATE_MS)}
    assert values_of(read_topic(spark, topics.bootstrap, timed, in_range)) == LATE


def test_stream_from_a_timestamp(spark: SparkSession, topics: Topics, timed: str, tmp_path: Path) -> None:
    everything = {"startingOffsets": "earliest"}
    stream = stream_topic(spark, topics.bootstrap, timed, everything | {"startingTimestamp": str(EARLY_MS + 1)})
    assert run_now(stream, tmp_path / "one") == [LATE]
    by_time = everything | {"startingOffsetsByTimestamp": offsets(timed, p0=LATE_MS)}
    assert run_now(stream_topic(spark, topics.bootstrap, timed, by_time), tmp_path / "two") == [LATE]


def test_stream_from_given_offsets(spark: SparkSession, topics: Topics, timed: str, tmp_path: Path) -> None:
    stream = stream_topic(spark, topics.bootstrap, timed, {"startingOffsets": offsets(timed, p0=5)})
    assert run_now(stream, tmp_path) == [["late 1", "late 2"]]


@pytest.mark.parametrize(
    ("option", "value", "partitions"), [("minPartitions", "5", 5), ("maxRecordsPerPartition", "25", 4)]
)
def test_spark_partitions_of_a_stream(
    spark: SparkSession, topics: Topics, tmp_path: Path, option: str, value: str, partitions: int
) -> None:
    topic = topics.create(1)
    topics.produce(topic, [f"{number:03d}" for number in range(100)], 0)
    seen: list[int] = []

    def keep(batch: Any, batch_id: int) -> None:
        seen.append(batch.rdd.getNumPartitions())

    for given in ({}, {option: value}):
        stream = stream_topic(spark, topics.bootstrap, topic, {"startingOffsets": "earliest"} | given)
        writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / str(len(given))))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(QUERY_S)
    assert seen == [1, partitions]


def test_a_batch_waits_for_enough_records_but_not_for_ever(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(1)
    topics.produce(topic, ["a"], 0)
    patient = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "3", "maxTriggerDelay": "1h"}
    with running(spark, stream_topic(spark, topics.bootstrap, topic, patient), "200 milliseconds") as told:
        until(told, ["a"])  # the first batch does not wait
        topics.produce(topic, ["b", "c"], 0)
        time.sleep(1.5)
        assert told() == ["a"]
        topics.produce(topic, ["d"], 0)
        until(told, ["a", "b", "c", "d"])
    hasty = patient | {"maxTriggerDelay": "1s"}
    with running(spark, stream_topic(spark, topics.bootstrap, topic, hasty), "200 milliseconds") as told:
        until(told, ["a", "b", "c", "d"])
        topics.produce(topic, ["e"], 0)
        until(told, ["a", "b", "c", "d", "e"])


def groups_beginning_with(topics: Topics, prefix: str) -> list[str]:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": topics.bootstrap})
    listed = admin.list_consumer_groups().result(CLIENT_S)
    return sorted(group.group_id for group in listed.valid if group.group_id.startswith(prefix))


def test_groups_of_the_older_way_to_read_offsets(
    spark: SparkSession, topics: Topics, timed: str, tmp_path: Path
) -> None:
    """The driver of the older way subscribes in a group; the usual way uses the admin API and needs none."""
    prefix = f"prefix-{uuid.uuid4().hex[:8]}"
    options = {"startingOffsets": "earliest", "groupIdPrefix": prefix}
    everything = [[*(f"early {number}" for number in range(4)), *LATE]]
    assert run_now(stream_topic(spark, topics.bootstrap, timed, options), tmp_path / "usual") == everything
    assert groups_beginning_with(topics, prefix) == []
    spark.conf.set(DEPRECATED, "true")
    try:
        name = f"named-{uuid.uuid4().hex[:8]}"
        named = {"startingOffsets": "earliest", "kafka.group.id": name}
        seen: list[str] = []
        for given, begin in ((options, prefix), (named, name)):
            with running(spark, stream_topic(spark, topics.bootstrap, timed, given)) as told:
                until(told, everything[0])
                seen += groups_beginning_with(topics, begin)
    finally:
        spark.conf.unset(DEPRECATED)
    assert len(seen) == 2
    assert seen[0].startswith(f"{prefix}-")
    assert seen[1] == name


def test_time_an_executor_waits_for_records(spark: SparkSession, topics: Topics, timed: str) -> None:
    slow = {"kafka.fetch.min.bytes": "10000000", "kafka.fetch.max.wait.ms": "1500"}
    impatient = slow | {"kafka.fetch.max.wait.ms": "4000", "kafkaConsumer.pollTimeoutMs": "100"}
    fails_with("100 milliseconds", lambda: values_of(read_topic(spark, topics.bootstrap, timed, impatient)))
    patient = slow | {"kafkaConsumer.pollTimeoutMs": "120000"}
    assert len(values_of(read_topic(spark, topics.bootstrap, timed, patient))) == 7


def test_offsets_are_fetched_again(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """The topic is created while a stream fetches its first offsets."""
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = f"later-{uuid.uuid4().hex[:8]}"
    options = {"assign": f'{{"{topic}":[0]}}', "startingOffsets": "earliest", "fetchOffset.retryIntervalMs": "300"}

    def read(retries: str) -> list[list[str]]:
        given = options | {"fetchOffset.numRetries": retries}
        return run_now(stream_topic(spark, topics.bootstrap, "", given), tmp_path / retries)

    fails_with("UnknownTopicOrPartition", lambda: read("1"))

    def create() -> None:
        admin = AdminClient({"bootstrap.servers": topics.bootstrap})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(CLIENT_S)
        topics.produce(topic, ["a"], 0)

    timer = threading.Timer(2.0, create)
    started = time.monotonic()
    timer.start()
    try:
        assert read("400") in ([], [["a"]])
        assert time.monotonic() - started > 1.5
    finally:
        timer.join()


def test_headers_of_a_stream(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(1)
    topics.produce(topic, ["a"], 0, headers=[("h", b"1"), ("h", None)])
    plain = stream_topic(spark, topics.bootstrap, topic, {"startingOffsets": "earliest"})
    assert "headers" not in plain.columns
    seen: list[Any] = []
    frame = stream_topic(spark, topics.bootstrap, topic, {"startingOffsets": "earliest", "includeHeaders": "true"})
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: seen.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_S)
    headers = [(header.key, header.value and bytes(header.value)) for row in seen for header in row.headers]
    assert headers == [("h", b"1"), ("h", None)]


def test_a_pattern_finds_topics_made_later(spark: SparkSession, topics: Topics) -> None:
    prefix = f"pattern{uuid.uuid4().hex[:6]}"
    first = topics.create(1, prefix)
    topics.produce(first, ["a"], 0)
    options = {"subscribePattern": f"{prefix}-.*", "startingOffsets": "earliest", "kafka.metadata.max.age.ms": "200"}
    with running(spark, stream_topic(spark, topics.bootstrap, "", options)) as told:
        until(told, ["a"])
        topics.produce(topics.create(1, prefix), ["b"], 0)
        until(told, ["a", "b"])


def test_partitions_added_later_are_read_from_their_beginning(spark: SparkSession, topics: Topics) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    topic = topics.create(1)
    topics.produce(topic, ["a"], 0)
    stream = stream_topic(spark, topics.bootstrap, topic, {"startingOffsets": "earliest"})
    with running(spark, stream) as told:
        until(told, ["a"])
        admin = AdminClient({"bootstrap.servers": topics.bootstrap})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(CLIENT_S)
        topics.produce(topic, ["b"], 1)
        until(told, ["a", "b"])


@pytest.mark.parametrize("deprecated", ["true", "false"])
def test_both_ways_to_read_offsets_give_the_same(
    spark: SparkSession, topics: Topics, timed: str, tmp_path: Path, deprecated: str
) -> None:
    spark.conf.set(DEPRECATED, deprecated)
    try:
        options = {"startingTimestamp": str(LATE_MS), "maxOffsetsPerTrigger": "2"}
        batches = run_now(stream_topic(spark, topics.bootstrap, timed, options), tmp_path)
    finally:
        spark.conf.unset(DEPRECATED)
    assert list(chain.from_iterable(batches)) == LATE
    assert [len(batch) for batch in batches] == [2, 1]
