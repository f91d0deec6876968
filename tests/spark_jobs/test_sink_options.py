"""Options and columns of Spark's official connector as a sink, batch and streaming."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gregor.spark_jobs.sources import read_topic, stream_topic
from tests.spark_jobs.test_source_options import QUERY_S, fails_with, values_of
from tests.spark_jobs.topics import Topics

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.compat]


def test_topic_column_and_the_option_that_wins_over_it(spark: SparkSession, topics: Topics) -> None:
    one, two, three = (topics.create() for _ in range(3))
    frame = spark.createDataFrame([(one, "a"), (two, "b")], "topic string, value string")
    servers = {"kafka.bootstrap.servers": topics.bootstrap}
    frame.write.format("kafka").options(**servers).save()
    assert values_of(read_topic(spark, topics.bootstrap, one)) == ["a"]
    assert values_of(read_topic(spark, topics.bootstrap, two)) == ["b"]
    frame.write.format("kafka").options(**servers, topic=three).save()
    assert values_of(read_topic(spark, topics.bootstrap, three)) == ["a", "b"]
    without = spark.createDataFrame([("a",)], "value string").write.format("kafka").options(**servers)
    fails_with("topic", without.save)


def test_partition_and_headers_columns(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(2)
    schema = "value string, partition int, headers array<struct<key string, value binary>>"
    rows = [("a", 1, [("h", bytearray(b"1")), ("h", None)]), ("b", 1, None), ("c", 0, None), ("d", 1, None)]
    writer = spark.createDataFrame(rows, schema).write.format("kafka").option("topic", topic)
    writer.option("kafka.bootstrap.servers", topics.bootstrap).option("includeHeaders", "true").save()
    read = read_topic(spark, topics.bootstrap, topic, {"includeHeaders": "true"}).collect()
    assert {(bytes(row.value).decode(), row.partition) for row in read} == {("a", 1), ("b", 1), ("c", 0), ("d", 1)}
    headers = {bytes(row.value): row.headers for row in read}
    assert [(header.key, header.value and bytes(header.value)) for header in headers[b"a"]] == [
        ("h", b"1"),
        ("h", None),
    ]
    assert headers[b"c"] is None


def test_null_keys_null_values_and_binary_columns(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(1)
    rows = [(None, bytearray(b"\x00\xff")), (bytearray(b"k"), None), (bytearray(b""), bytearray(b""))]
    writer = spark.createDataFrame(rows, "key binary, value binary").coalesce(1).write.format("kafka")
    writer.options(**{"kafka.bootstrap.servers": topics.bootstrap, "topic": topic}).save()
    assert sorted(topics.read(topic, 1), key=str) == sorted([(None, b"\x00\xff"), (b"k", None), (b"", b"")], key=str)


def test_settings_of_the_producer_arrive(spark: SparkSession, topics: Topics) -> None:
    """Compression follows the setting; and a record above the broker's limit is an error, not a silent loss."""
    topic = topics.create(1)
    frame = spark.createDataFrame([("x" * 100_000,)], "value string")
    servers = {"kafka.bootstrap.servers": topics.bootstrap, "topic": topic}
    frame.write.format("kafka").options(**servers | {"kafka.compression.type": "gzip"}).save()
    assert values_of(read_topic(spark, topics.bootstrap, topic)) == ["x" * 100_000]
    # 100,000 bytes do not fit into 50,000 unless they are compressed: so the first write was.
    small = topics.create(1, config={"max.message.bytes": "50000"})
    frame.write.format("kafka").options(**servers | {"kafka.compression.type": "gzip", "topic": small}).save()
    plain = frame.write.format("kafka").options(**servers | {"topic": small})
    fails_with("RecordTooLargeException", plain.save)
    assert values_of(read_topic(spark, topics.bootstrap, small)) == ["x" * 100_000]


def test_stream_from_a_topic_to_a_topic(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create(2), topics.create(2)
    topics.produce(source, [f"{number:03d}" for number in range(50)], key="k")
    frame = stream_topic(spark, topics.bootstrap, source, {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"})
    upper = frame.selectExpr("key", "concat('v', CAST(value AS STRING)) AS value")
    for _ in range(2):  # the second run has nothing to do
        query = (
            upper.writeStream.format("kafka")
            .option("kafka.bootstrap.servers", topics.bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(QUERY_S)
    expected = [(b"k", f"v{number:03d}".encode()) for number in range(50)]
    assert sorted(topics.read(target)) == expected
