"""Runs of a job over what its topics contain, and the faults that tests put between two runs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from gregor.spark_jobs.jobs.common.job import Job
from gregor.spark_jobs.jobs.common.terminal import Terminal
from gregor.spark_jobs.progress import Progress
from tests.spark_jobs.topics import CLIENT_S, Topics

SECOND = 1_000
MINUTE = 60 * SECOND
RUN_S = 300


class Event(NamedTuple):
    """A record to produce."""

    value: bytes | None
    key: str | None = None
    time_ms: int = 0
    partition: int = 0


def send(topics: Topics, topic: str, events: Iterable[Event]) -> None:
    """Produce the records and wait for all acknowledgements."""
    from confluent_kafka import Producer

    failures: list[object] = []
    producer = Producer({"bootstrap.servers": topics.bootstrap, "acks": "all"})
    for event in events:
        producer.produce(
            topic,
            event.value,
            key=event.key,
            timestamp=event.time_ms,
            partition=event.partition,
            on_delivery=lambda error, message: failures.append(error) if error else None,
        )
    assert producer.flush(CLIENT_S) == 0
    assert failures == []


def grow(topics: Topics, topic: str, partitions: int) -> None:
    """Raise the number of partitions."""
    from confluent_kafka.admin import AdminClient, NewPartitions

    admin = AdminClient({"bootstrap.servers": topics.bootstrap})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(CLIENT_S)


def run_job(
    spark: SparkSession, job: Job, topics: Topics, *arguments: str | Path, once: tuple[str, ...] = ("--once",)
) -> Progress:
    """Run a job with --once, on one partition of state, as each costs time."""
    options = job.parse(["-b", topics.bootstrap, *once, *map(str, arguments)])
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        return job.run_in(spark, options, Terminal(sys.stdout), RUN_S)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", partitions or "2")


def forget_last_commit(checkpoint: Path) -> None:
    """Put a checkpoint back to where a kill between the output of a batch and its commit leaves it."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)


def json_rows(topics: Topics, topic: str, partitions: int = 1) -> list[dict[str, Any]]:
    """Return the JSON values of a topic in order."""
    return [json.loads(value) for _, value in topics.read(topic, partitions) if value is not None]


def exactly_once(target: str, checkpoint: Path) -> list[str]:
    """Return the arguments of a job that writes to a topic exactly once."""
    sink = ["--sink", "exactly-once", "--output-topic", target, "--transactional-id", f"of-{target}"]
    return [*sink, "--checkpoint", str(checkpoint)]


def committed(topics: Topics, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Return the keys and values that a read_committed consumer receives up to the end of partition 0."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {"bootstrap.servers": topics.bootstrap, "group.id": "t", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        records = []
        while (message := consumer.poll(CLIENT_S)) is not None and message.error() is None:
            records.append((message.key(), message.value()))
        assert message is not None and message.error().code() == KafkaError._PARTITION_EOF
        return records
    finally:
        consumer.close()


def committed_rows(topics: Topics, topic: str) -> list[dict[str, Any]]:
    """Return the JSON values that a read_committed consumer receives."""
    return [json.loads(value) for _, value in committed(topics, topic) if value is not None]


def sessions_of(events: Iterable[Event], gap_ms: int) -> Iterator[tuple[str | None, int, int, int]]:
    """Yield the sessions of each key: (key, start, end, number of records)."""
    by_key: dict[str | None, list[int]] = {}
    for event in events:
        by_key.setdefault(event.key, []).append(event.time_ms)
    for key, times in by_key.items():
        begin = previous = count = 0
        for time_ms in sorted(times):
            if count and time_ms >= previous + gap_ms:
                yield key, begin, previous + gap_ms, count
                count = 0
            begin = begin if count else time_ms
            previous, count = time_ms, count + 1
        yield key, begin, previous + gap_ms, count


def epoch_ms(text: str) -> int:
    """Return a time of a JSON value in milliseconds since 1970."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def start_of_window(time_ms: float, length_ms: int) -> int:
    return math.floor(time_ms / length_ms) * length_ms
