"""The job `windows` beside an oracle in plain Python: records out of order, duplicates, records behind the watermark,
values that cannot be decoded, a batch that is repeated, and a topic that grows."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.jobs.windows import JOB
from tests.spark_jobs.jobs.running import (
    MINUTE,
    SECOND,
    Event,
    epoch_ms,
    forget_last_commit,
    grow,
    json_rows,
    run_job,
    send,
)
from tests.spark_jobs.jobs.running import start_of_window as floor
from tests.spark_jobs.topics import CLIENT_S, Topics

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.compat]

START = 1_700_000_000_000
WATERMARK = 2 * MINUTE
SCHEMA = "user STRING, amount BIGINT, at BIGINT"
BROKEN = [b"{", b"[1]", b"", b'{"user": "a", "amount": "much", "at": 1}', b'{"user": "a", "amount": 1}']


class Oracle:
    """Counts and sums per window and key, with one watermark for a run."""

    def __init__(self, length_ms: int, slide_ms: int) -> None:
        self.length_ms, self.slide_ms = length_ms, slide_ms
        self.windows: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])
        self.watermark_ms = 0
        self.dropped = 0

    def run(self, records: list[dict[str, Any]]) -> None:
        for record in records:
            start = floor(record["at"], self.slide_ms)
            while start + self.length_ms > record["at"]:
                if start + self.length_ms > self.watermark_ms:
                    total = self.windows[start, record["user"]]
                    total[0] += 1
                    total[1] += record["amount"]
                else:
                    self.dropped += 1
                start -= self.slide_ms
        self.watermark_ms = max(self.watermark_ms, *(record["at"] - WATERMARK for record in records))


def make_records(chance: random.Random, count: int, begin_ms: int, span_ms: int) -> list[dict[str, Any]]:
    records = [
        {
            "user": chance.choice("abc"),
            "amount": chance.randrange(-5, 100),
            "at": begin_ms + chance.randrange(span_ms),
        }
        for _ in range(count)
    ]
    return records + chance.choices(records, k=count // 10)  # with duplicates


def events(records: list[dict[str, Any]], partitions: int) -> list[Event]:
    return [Event(json.dumps(one).encode(), partition=at % partitions) for at, one in enumerate(records)]


def dead_letters(topics: Topics, topic: str) -> list[tuple[bytes | None, dict[str, str]]]:
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": "t", "enable.auto.commit": False})
    try:
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), CLIENT_S)[1]
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        while len(found) < end:
            message = consumer.poll(CLIENT_S)
            assert message is not None and message.error() is None
            headers = {name: value.decode() for name, value in message.headers() or [] if isinstance(value, bytes)}
            found.append((message.value(), headers))
        return found
    finally:
        consumer.close()


def test_sliding_windows_of_json_through_faults(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, target, letters = topics.create(1), topics.create(1), topics.create(1)
    chance = random.Random(1)
    checkpoint, chart = tmp_path / "checkpoint", tmp_path / "chart.svg"
    arguments = ["--topic", source, "--sink", "topic", "--output-topic", target, "--checkpoint", checkpoint]
    arguments += ["--value-format", "json", "--schema", SCHEMA, "--dead-letter-topic", letters, "--chart", chart]
    arguments += ["--key", "value.user", "--time", "timestamp_millis(value.at)", "--sum", "amount=value.amount"]
    arguments += ["--window", "60 seconds", "--slide", "20 seconds", "--watermark", "2 minutes"]
    oracle = Oracle(MINUTE, 20 * SECOND)

    def totals() -> dict[tuple[int, str], list[int]]:
        return {
            (epoch_ms(row["window_start"]), row["key"]): [row["count"], row["amount"]]
            for row in json_rows(topics, target)
        }

    first = make_records(chance, 100, START, 5 * MINUTE)
    send(topics, source, [*events(first, 1), *(Event(value, "k") for value in BROKEN)])
    progress = run_job(spark, JOB, topics, *arguments)
    oracle.run(first)
    assert totals() == oracle.windows
    assert (progress.dropped, progress.dead_letters) == (0, len(BROKEN))
    found = dead_letters(topics, letters)
    assert [value for value, _ in found] == BROKEN
    origins = [headers["__connect.errors.offset"] for _, headers in found]
    assert origins == [str(len(first) + at) for at in range(len(BROKEN))]
    assert {(one["__connect.errors.topic"], one["__connect.errors.partition"]) for _, one in found} == {(source, "0")}
    reasons = [headers["__connect.errors.exception.message"] for _, headers in found]
    assert reasons[0] == "the value is not JSON"
    assert reasons[3].startswith("the value does not fit the schema struct<user:string,")
    assert reasons[4] == "the event time timestamp_millis(value.at) is null or no timestamp"

    forget_last_commit(checkpoint)  # the batch is repeated
    grow(topics, source, 3)
    second = make_records(chance, 60, START, 8 * MINUTE)
    send(topics, source, events(second, 3))
    progress = run_job(spark, JOB, topics, *arguments)
    oracle.run(second)
    assert totals() == oracle.windows
    assert oracle.dropped > 0 and progress.dropped > 0
    assert chart.read_text().startswith("<svg") and "amount of" in chart.read_text()

    with pytest.raises(
        JobError, match="was written with --window '60 seconds', and this run has --window '30 seconds'"
    ):
        run_job(spark, JOB, topics, *arguments, "--window", "30 seconds")


def test_finished_windows_of_text_in_parquet_once_each(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, path = topics.create(1), tmp_path / "windows"
    arguments = ["--topic", source, "--sink", "parquet", "--output-path", path, "--watermark", "0 seconds"]
    first = [Event(b"x", key, START + at * SECOND) for at, key in enumerate("aabab")]
    send(topics, source, first)
    run_job(spark, JOB, topics, *arguments)
    forget_last_commit(path / "_checkpoint")
    send(topics, source, [Event(b"x", "c", START + 10 * MINUTE), Event(b"x", "a", START + 3)])
    run_job(spark, JOB, topics, *arguments)
    rows = spark.read.parquet(str(path)).collect()
    found = Counter({(row["key"], row["window_start"].timestamp() * 1000): row["count"] for row in rows})
    assert len(rows) == len(found)
    assert found == {("a", floor(START, MINUTE)): 3 + 1, ("b", floor(START, MINUTE)): 2}


def test_a_value_that_cannot_be_decoded_ends_the_job_without_a_dead_letter_topic(
    spark: SparkSession, topics: Topics
) -> None:
    source = topics.create(1)
    send(topics, source, [Event(b"fine"), Event(b"\xff")])
    with pytest.raises(JobError, match=rf"the record {source}-0 at offset 1 cannot be decoded: the value is not UTF-8"):
        run_job(spark, JOB, topics, "--topic", source)
