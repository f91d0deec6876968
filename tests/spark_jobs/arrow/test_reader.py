"""Ranges of topics of a real broker."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.spark_jobs.arrow import segments
from gregor.spark_jobs.arrow.files import LeaderAuthority
from gregor.spark_jobs.arrow.plan import Filters, Mode, PartitionRange, ReadPlan
from gregor.spark_jobs.arrow.reader import close_idle, read
from gregor.spark_jobs.arrow.segments import Unreadable
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.settings import ClientSettings
from gregor.spark_jobs.errors import JobError
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


@pytest.fixture(scope="module")
def topic(topics: Topics) -> str:
    name = topics.create(1)
    for start in range(0, 2000, 250):
        topics.produce(name, [b"%d" % number for number in range(start, start + 250)], partition=0)
    return name


class Fails:
    """Passes calls on until the given number, from which on they raise an error."""

    def __init__(self, calls: int, call: Any, error: Exception) -> None:
        self.left = calls
        self.call = call
        self.error = error

    def __get__(self, owner: object, kind: type) -> Any:
        return lambda *arguments: self(owner, *arguments)

    def __call__(self, *arguments: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise self.error
        return self.call(*arguments)


@pytest.mark.parametrize("calls", [0, 1, 3, 4])
@pytest.mark.parametrize(
    "error", [Unreadable("moved"), KafkaFailure(ErrorCode.NETWORK_EXCEPTION, "gone")], ids=["unreadable", "failure"]
)
def test_fetches_continue_where_files_end(
    topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch, calls: int, error: Exception
) -> None:
    monkeypatch.setattr(segments, "MIN_WINDOW_BYTES", 1000)
    monkeypatch.setattr(segments, "MAX_WINDOW_BYTES", 1000)
    confirm = Fails(calls, LeaderAuthority.confirm, error)
    monkeypatch.setattr(LeaderAuthority, "confirm", confirm)
    rows = rows_read(plan_of(topics.bootstrap, topic, 0, 2000))
    assert [row["value"] for row in rows] == [b"%d" % number for number in range(2000)]
    assert confirm.left < 0


def test_files_alone_name_the_remedy(topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaderAuthority, "confirm", Fails(1, LeaderAuthority.confirm, Unreadable("moved")))
    with pytest.raises(JobError, match="cannot be read from files: moved. Use mode=auto, which fetches"):
        rows_read(plan_of(topics.bootstrap, topic, 0, 2000, mode="files"))


def test_brokers_with_an_authorizer_are_fetched_from_by_auto(
    topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files pass by the rights that an authorizer gives: they are read only by the mode that names them."""
    monkeypatch.setattr("gregor.spark_jobs.arrow.reader.has_authorizer", lambda *_: True)
    monkeypatch.setattr(LeaderAuthority, "confirm", Fails(0, None, AssertionError("files are read")))
    assert len(rows_read(plan_of(topics.bootstrap, topic, 5, 2000))) == 1995


def test_offsets_of_filters_narrow_the_range(topics: Topics, topic: str) -> None:
    plan = plan_of(topics.bootstrap, topic, 0, 2000, filters=Filters(min_offset=7, max_offset=9))
    assert [row["offset"] for row in rows_read(plan)] == [7, 8, 9]
    assert rows_read(plan_of(topics.bootstrap, topic, 0, 2000, filters=Filters(min_offset=2000))) == []
