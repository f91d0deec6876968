"""Ranges of topics of a real broker."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.spark_jobs.arrow.plan import Mode, PartitionRange, ReadPlan
from gregor.spark_jobs.arrow.reader import close_idle, read
from gregor.spark_jobs.client.settings import ClientSettings
from tests.spark_jobs.topics import Topics

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(autouse=True)
def connections_are_closed() -> Any:
    yield
    close_idle()


def plan_of(bootstrap: str, topic: str, start: int, end: int, **options: Any) -> ReadPlan:
    settings = ClientSettings.from_options({"kafka.bootstrap.servers": bootstrap})
    return ReadPlan(settings, PartitionRange(topic, 0, start, end), **options)


def rows_read(plan: ReadPlan) -> list[dict[str, Any]]:
    return [row for rows in read(plan) for row in rows.to_pylist()]


@pytest.mark.parametrize("mode", ["wire", "files"])
def test_every_codec_key_and_header_of_a_real_broker(topics: Topics, mode: Mode) -> None:
    from confluent_kafka import Producer

    topic = topics.create(1)
    expected: list[tuple[Any, ...]] = []
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": topics.bootstrap, "compression.type": codec, "linger.ms": 50})
        for number in range(500):
            key = None if number % 7 == 0 else b"key-%d" % number
            value = None if number % 11 == 0 else (codec.encode() + b" ") * (number % 50)
            headers = [("h", b"x"), ("empty", b""), ("null", None)][: number % 4]
            producer.produce(topic, value, key, partition=0, timestamp=1000 + number, headers=headers)
            expected.append((key, value, [{"key": name, "value": text} for name, text in headers] or None, number))
        assert producer.flush(60) == 0
    rows = rows_read(plan_of(topics.bootstrap, topic, 0, len(expected), mode=mode, include_headers=True))
    assert [(row["key"], row["value"], row["headers"], row["timestamp"].microsecond // 1000) for row in rows] == [
        (key, value, headers, (1000 + number) % 1000) for key, value, headers, number in expected
    ]
    assert [row["offset"] for row in rows] == list(range(len(expected)))
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} == {(topic, 0, 0)}
    part = rows_read(plan_of(topics.bootstrap, topic, 777, 1234, mode=mode))
    assert [row["offset"] for row in part] == list(range(777, 1234))


@pytest.mark.parametrize("mode", ["wire", "files"])
def test_transactions_of_a_real_broker(topics: Topics, mode: Mode) -> None:
    from confluent_kafka import Producer

    topic = topics.create(1)
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": f"{topic}-{mode}"})
    producer.init_transactions(60)
    for number in range(4):
        producer.begin_transaction()
        for value in range(3):
            producer.produce(topic, b"%d" % value, b"%d" % number, partition=0)
        producer.flush(60)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    for read_committed, keys in ((True, [0, 2]), (False, [0, 1, 2, 3])):
        rows = rows_read(plan_of(topics.bootstrap, topic, 0, 16, mode=mode, read_committed=read_committed))
        assert [row["key"] for row in rows] == [b"%d" % key for key in keys for _ in range(3)]
