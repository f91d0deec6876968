"""Spark's connector on topics with gaps: deleted, expired and compacted records, and a broker that was killed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gregor.spark_jobs.sources import read_topic, stream_topic
from tests.spark_jobs.test_source_options import fails_with, offsets, run_now, running, until, values_of
from tests.spark_jobs.topics import CLIENT_S, Topics
from tests.support.processes import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.compat, pytest.mark.by_day(2)]

TOLERANT = {"failOnDataLoss": "false"}


@pytest.fixture(scope="module")
def busy_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Compacts and applies retention all the time."""
    settings = {"log.cleaner.backoff.ms": "100", "log.retention.check.interval.ms": "200"}
    with BrokerProcess(tmp_path_factory.mktemp("busy"), settings) as broker:
        yield broker


def delete_records(topics: Topics, topic: str, offset: int, partition: int = 0) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": topics.bootstrap})
    futures = admin.delete_records([TopicPartition(topic, partition, offset)])
    for future in futures.values():
        assert future.result(CLIENT_S).low_watermark == offset


def earliest(topics: Topics, topic: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": "t"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), CLIENT_S)[0])
    finally:
        consumer.close()


def test_batch_over_deleted_records(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(1)
    topics.produce(topic, [str(number) for number in range(10)], 0)
    delete_records(topics, topic, 6)
    from_the_start = {"startingOffsets": offsets(topic, p0=0)}
    fails_with("data may have been lost", lambda: values_of(read_topic(spark, topics.bootstrap, topic, from_the_start)))
    rest = ["6", "7", "8", "9"]
    assert values_of(read_topic(spark, topics.bootstrap, topic, from_the_start | TOLERANT)) == rest
    assert values_of(read_topic(spark, topics.bootstrap, topic)) == rest


def test_stream_over_records_deleted_behind_its_checkpoint(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(1)
    topics.produce(topic, ["0", "1", "2"], 0)
    options = {"startingOffsets": "earliest"}
    assert run_now(stream_topic(spark, topics.bootstrap, topic, options), tmp_path) == [["0", "1", "2"]]
    topics.produce(topic, [str(number) for number in range(3, 9)], 0)
    delete_records(topics, topic, 6)
    strict = stream_topic(spark, topics.bootstrap, topic, options)
    fails_with("failOnDataLoss", lambda: run_now(strict, tmp_path))
    tolerant = stream_topic(spark, topics.bootstrap, topic, options | TOLERANT)
    assert run_now(tolerant, tmp_path) == [["6", "7", "8"]]


def test_stream_over_a_topic_that_was_made_anew(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = topics.create(1)
    topics.produce(topic, ["a", "b", "c"], 0)
    options = {"startingOffsets": "earliest"}
    assert run_now(stream_topic(spark, topics.bootstrap, topic, options), tmp_path) == [["a", "b", "c"]]
    admin = AdminClient({"bootstrap.servers": topics.bootstrap})
    admin.delete_topics([topic])[topic].result(CLIENT_S)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(CLIENT_S)
    topics.produce(topic, ["d"], 0)
    fails_with("failOnDataLoss", lambda: run_now(stream_topic(spark, topics.bootstrap, topic, options), tmp_path))


def test_expired_records_are_a_gap_like_deleted_ones(
    spark: SparkSession, busy_broker: BrokerProcess, tmp_path: Path
) -> None:
    topics = Topics(busy_broker.bootstrap)
    topic = topics.create(1, config={"segment.bytes": "1048576", "retention.bytes": "2000000"})
    topics.produce(topic, ["first"], 0)
    options = {"startingOffsets": "earliest"}
    assert run_now(stream_topic(spark, topics.bootstrap, topic, options), tmp_path) == [["first"]]
    for batch in range(6):
        topics.produce(topic, [f"{batch} {number:03d} {'x' * 9000}" for number in range(100)], 0)
    deadline = time.monotonic() + 180
    # Until no further segment is due: a part may go while the rest is still being produced.
    while 9030 * (601 - earliest(topics, topic)) > 2_000_000 + 1_048_576:
        assert time.monotonic() < deadline, "retention did not come"
        time.sleep(0.1)
    fails_with("failOnDataLoss", lambda: run_now(stream_topic(spark, topics.bootstrap, topic, options), tmp_path))
    kept = run_now(stream_topic(spark, topics.bootstrap, topic, options | TOLERANT), tmp_path)
    values = list(chain.from_iterable(kept))
    assert len(values) == 601 - earliest(topics, topic)
    assert values[-1].startswith("5 099 ")


def test_compacted_records_are_no_loss(spark: SparkSession, busy_broker: BrokerProcess, tmp_path: Path) -> None:
    topics = Topics(busy_broker.bootstrap)
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "500"}
    topic = topics.create(1, config=config)
    for turn in range(4):
        for key in "abc":
            topics.produce(topic, [f"{key}{turn}"], 0, key=key)
    time.sleep(0.6)
    topics.produce(topic, ["d0"], 0, key="d")  # the segment with the others is rolled, so it can be compacted
    compacted = ["a3", "b3", "c3", "d0"]
    deadline = time.monotonic() + 180
    while len(topics.read(topic, 1)) != len(compacted):
        assert time.monotonic() < deadline, f"not compacted: {topics.read(topic, 1)}"
        time.sleep(0.2)
    frame = read_topic(spark, topics.bootstrap, topic, {"startingOffsets": offsets(topic, p0=0)})
    assert [row.offset for row in frame.orderBy("offset").collect()] == [9, 10, 11, 12]
    assert values_of(frame) == compacted
    for given in ({}, {"maxOffsetsPerTrigger": "2"}, {"minPartitions": "4"}):
        options = {"startingOffsets": "earliest", "failOnDataLoss": "true"} | given
        batches = run_now(stream_topic(spark, topics.bootstrap, topic, options), tmp_path / str(given))
        assert sorted(chain.from_iterable(batches)) == compacted


def test_a_broker_killed_under_a_stream_to_files(spark: SparkSession, tmp_path: Path) -> None:
    """The running query outlives the kill; its files hold each acknowledged record once, also after a new start from
    the checkpoint."""
    broker = BrokerProcess(tmp_path / "broker").start()
    try:
        topics = Topics(broker.bootstrap)
        topic = topics.create(2)
        output, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

        def writer() -> object:
            frame = stream_topic(spark, broker.bootstrap, topic, {"startingOffsets": "earliest"})
            values = frame.selectExpr("CAST(value AS STRING) AS value")
            return values.writeStream.format("parquet").option("path", output).option("checkpointLocation", checkpoint)

        def written() -> list[str]:
            if not Path(output, "_spark_metadata").exists():
                return []
            return sorted(row.value for row in spark.read.schema("value string").parquet(output).collect())

        expected: list[str] = []
        query = writer().start()  # type: ignore[attr-defined]
        try:
            for turn in range(3):
                sent = [f"{turn} {number:03d}" for number in range(200)]
                topics.produce(topic, sent)
                expected += sent
                if turn != 1:
                    until(written, expected)
                broker.kill()
                broker.start()
        finally:
            query.stop()
        again = writer().trigger(availableNow=True).start()  # type: ignore[attr-defined]
        assert again.awaitTermination(180)
        assert written() == sorted(expected)
    finally:
        broker.kill()


def test_a_broker_killed_between_two_runs(spark: SparkSession, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker").start()
    try:
        topics = Topics(broker.bootstrap)
        topic = topics.create(1)
        topics.produce(topic, ["a", "b"], 0)
        stream = stream_topic(spark, broker.bootstrap, topic, {"startingOffsets": "earliest"})
        assert run_now(stream, tmp_path / "checkpoint") == [["a", "b"]]
        topics.produce(topic, ["c"], 0)
        broker.kill()
        broker.start()
        topics.produce(topic, ["d"], 0)
        assert run_now(stream, tmp_path / "checkpoint") == [["c", "d"]]
        assert run_now(stream, tmp_path / "checkpoint") == []
    finally:
        broker.kill()


def test_stream_reads_records_after_a_deletion(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(1)
    topics.produce(topic, ["a", "b"], 0)
    with running(spark, stream_topic(spark, topics.bootstrap, topic, {"startingOffsets": "earliest"})) as told:
        until(told, ["a", "b"])
        delete_records(topics, topic, 2)
        topics.produce(topic, ["c"], 0)
        until(told, ["a", "b", "c"])
