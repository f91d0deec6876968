"""Batch and streaming reads of topics by Spark's official connector."""

import time
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gregor.spark_jobs.sources import read_topic, source_options, stream_topic
from tests.spark_jobs.topics import CLIENT_S, Topics
from tests.support.fetching_clients import largest_lags
from tests.support.processes import BrokerProcess


def against_broker(test: Callable[..., None]) -> Callable[..., None]:
    for mark in (pytest.mark.slow, pytest.mark.jvm, pytest.mark.compat):
        test = mark(test)
    return test


def test_options_name_the_topic_unless_the_caller_names_partitions_or_a_pattern() -> None:
    assert source_options("h:1", "a,b") == {"kafka.bootstrap.servers": "h:1", "subscribe": "a,b"}
    assert source_options("h:1", "a", {"subscribePattern": "x.*"}) == {
        "kafka.bootstrap.servers": "h:1",
        "subscribePattern": "x.*",
    }
    assert source_options("h:1", "a", {"assign": '{"a":[0]}', "startingOffsets": "latest"}) == {
        "kafka.bootstrap.servers": "h:1",
        "assign": '{"a":[0]}',
        "startingOffsets": "latest",
    }


def values_of(frame: DataFrame) -> list[str]:
    return sorted(row.text for row in frame.select(F.col("value").cast("string").alias("text")).collect())


@against_broker
def test_batch_read_gives_every_column_as_it_was_produced(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    stamp = 1_700_000_000_123
    topics.produce(topic, ["first", None, b"\x00\xff"], 1, "k", [("h", b"1"), ("h", None), ("i", "x")], stamp)
    rows = read_topic(spark, topics.bootstrap, topic, {"includeHeaders": "true"}).orderBy("offset").collect()
    assert [bytes(row.value) if row.value is not None else None for row in rows] == [b"first", None, b"\x00\xff"]
    assert [(row.topic, row.partition, row.offset) for row in rows] == [(topic, 1, offset) for offset in range(3)]
    assert {bytes(row.key) for row in rows} == {b"k"}
    assert {round(row.timestamp.timestamp() * 1000) for row in rows} == {stamp}
    assert {row.timestampType for row in rows} == {0}
    for row in rows:
        headers = [(header.key, header.value and bytes(header.value)) for header in row.headers]
        assert headers == [("h", b"1"), ("h", None), ("i", b"x")]


@against_broker
def test_batch_read_of_many_records_in_small_pieces(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(3)
    sent = [f"value {number:05d} {'x' * (number % 300)}" for number in range(6000)]
    for partition in range(3):
        topics.produce(topic, sent[partition::3], partition)
    frame = read_topic(
        spark, topics.bootstrap, topic, {"minPartitions": "6", "kafka.max.partition.fetch.bytes": "20000"}
    )
    assert frame.rdd.getNumPartitions() == 6
    assert values_of(frame) == sorted(sent)


@against_broker
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batch_read_of_each_codec(spark: SparkSession, topics: Topics, codec: str) -> None:
    from confluent_kafka import Producer

    topic = topics.create(1)
    producer = Producer({"bootstrap.servers": topics.bootstrap, "compression.type": codec, "linger.ms": 200})
    sent = [f"{codec} {number}" for number in range(500)]
    for value in sent:
        producer.produce(topic, value)
    assert producer.flush(CLIENT_S) == 0
    assert values_of(read_topic(spark, topics.bootstrap, topic)) == sorted(sent)


@against_broker
def test_batch_read_between_offsets_and_times(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(1)
    early, late = 1_700_000_000_000, 1_700_000_100_000
    topics.produce(topic, [f"early {number}" for number in range(4)], 0, timestamp_ms=early)
    topics.produce(topic, [f"late {number}" for number in range(3)], 0, timestamp_ms=late)

    def read(**options: str) -> list[str]:
        return values_of(read_topic(spark, topics.bootstrap, topic, options))

    assert read(startingOffsets=f'{{"{topic}":{{"0":2}}}}', endingOffsets=f'{{"{topic}":{{"0":5}}}}') == [
        "early 2",
        "early 3",
        "late 0",
    ]
    assert read(startingOffsets=f'{{"{topic}":{{"0":-2}}}}', endingOffsets=f'{{"{topic}":{{"0":-1}}}}') == [
        *(f"early {number}" for number in range(4)),
        *(f"late {number}" for number in range(3)),
    ]
    assert read(startingTimestamp=str(late - 1)) == ["late 0", "late 1", "late 2"]
    assert read(endingTimestamp=str(late)) == [f"early {number}" for number in range(4)]
    by_time = f'{{"{topic}":{{"0":{early + 1}}}}}'
    assert read(startingOffsetsByTimestamp=by_time) == ["late 0", "late 1", "late 2"]


@against_broker
def test_batch_read_by_pattern_and_by_assignment(spark: SparkSession, topics: Topics) -> None:
    one, two = topics.create(prefix="pattern"), topics.create(prefix="pattern")
    topics.produce(one, ["a", "b"])
    topics.produce(two, ["c"])
    pattern = {"subscribePattern": f"({one}|{two})"}
    assert values_of(read_topic(spark, topics.bootstrap, "", pattern)) == ["a", "b", "c"]
    assert values_of(read_topic(spark, topics.bootstrap, f"{one},{two}")) == ["a", "b", "c"]
    assert values_of(read_topic(spark, topics.bootstrap, "", {"assign": f'{{"{one}":[1]}}'})) == ["b"]


@against_broker
def test_committed_isolation_reads_available_records(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    topics.produce(topic, ["a", "b", "c"])
    options = {"kafka.isolation.level": "read_committed"}
    assert values_of(read_topic(spark, topics.bootstrap, topic, options)) == ["a", "b", "c"]


@against_broker
def test_batch_write_is_read_back_by_another_client(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    rows = [(f"key {number}", f"value {number}") for number in range(300)]
    frame = spark.createDataFrame(rows, "key string, value string")
    options = {"kafka.bootstrap.servers": topics.bootstrap, "topic": topic}
    frame.write.format("kafka").options(**options).save()
    assert sorted(topics.read(topic)) == sorted((key.encode(), value.encode()) for key, value in rows)


def collect_stream(frame: DataFrame, checkpoint: str) -> list[list[str]]:
    """Runs the stream over what is there now; the values of each batch."""
    batches: list[list[str]] = []

    def keep(batch: Any, batch_id: int) -> None:
        batches.append(values_of(batch))

    query = (
        frame.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    )
    try:
        assert query.awaitTermination(180), "the query did not end"
    finally:
        query.stop()
    return batches


@against_broker
def test_streaming_read_in_batches_and_again_from_the_checkpoint(
    spark: SparkSession, topics: Topics, tmp_path: Any
) -> None:
    topic = topics.create()
    first = [f"first {number}" for number in range(10)]
    topics.produce(topic, first)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}
    frame = stream_topic(spark, topics.bootstrap, topic, options)
    batches = collect_stream(frame, str(tmp_path / "checkpoint"))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert sorted(chain.from_iterable(batches)) == first
    second = [f"second {number}" for number in range(3)]
    topics.produce(topic, second)
    assert sorted(chain.from_iterable(collect_stream(frame, str(tmp_path / "checkpoint")))) == second


@against_broker
def test_streaming_read_sees_records_that_arrive_later(
    spark: SparkSession, topics: Topics, broker: BrokerProcess
) -> None:
    topic = topics.create()
    topics.produce(topic, ["before"])
    frame = stream_topic(spark, topics.bootstrap, topic, {"startingOffsets": "latest"})
    name = topic.replace("-", "_")
    query = frame.writeStream.format("memory").queryName(name).start()
    try:
        deadline = time.monotonic() + 180
        while not query.recentProgress:
            assert time.monotonic() < deadline, "the query reports nothing"
            time.sleep(0.05)  # the query has chosen its starting offsets once it reports
        topics.produce(topic, ["after 1", "after 2"])
        query.processAllAvailable()
        assert values_of(spark.table(name)) == ["after 1", "after 2"]
        # They are in both partitions. The stream commits nothing; its executor fetches ahead of what it reads.
        while largest_lags([broker], topic) != {0: 0, 1: 0}:
            assert time.monotonic() < deadline, largest_lags([broker], topic)
            time.sleep(0.05)
    finally:
        query.stop()
