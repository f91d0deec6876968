"""The jobs beside oracles in plain Python, most over two runs with faults between them: the last batch is repeated, and
the topic grows."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.jobs import dedup, route, sessions, statement, top, two_topics
from gregor.spark_jobs.jobs.common.job import Job
from gregor.spark_jobs.jobs.common.latest import LatestTable
from tests.spark_jobs.client.test_offsets import committed as committed_offset
from tests.spark_jobs.jobs.running import (
    MINUTE,
    SECOND,
    Event,
    committed,
    committed_rows,
    epoch_ms,
    forget_last_commit,
    grow,
    json_rows,
    run_job,
    send,
    sessions_of,
)
from tests.spark_jobs.jobs.running import start_of_window as floor
from tests.spark_jobs.topics import Topics

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.compat, pytest.mark.by_day(4)]

START = 1_700_000_000_000


class Pipe:
    """A job from a topic of one partition, which grows to two after the first run, to a topic."""

    def __init__(self, spark: SparkSession, topics: Topics, folder: Path, job: Job, *arguments: str) -> None:
        self.spark, self.topics, self.job = spark, topics, job
        self.source, self.target = topics.create(1), topics.create(1)
        self.checkpoint = folder / "checkpoint"
        self.arguments = [*arguments, "--topic", self.source, "--sink", "topic", "--output-topic", self.target]
        self.arguments += ["--checkpoint", str(self.checkpoint)]

    def run(self, events: list[Event]) -> int:
        """Run over these records; return how many rows were dropped behind the watermark."""
        send(self.topics, self.source, events)
        return run_job(self.spark, self.job, self.topics, *self.arguments).dropped

    def write_exactly_once(self) -> None:
        self.arguments += ["--sink", "exactly-once", "--transactional-id", f"of-{self.target}"]

    def committed_rows(self) -> list[dict[str, Any]]:
        return committed_rows(self.topics, self.target)

    def break_off(self) -> None:
        forget_last_commit(self.checkpoint)
        grow(self.topics, self.source, 2)


@pytest.mark.parametrize("source", ["kafka", "gregor"])
def test_dedup_writes_each_record_once(spark: SparkSession, topics: Topics, tmp_path: Path, source: str) -> None:
    pipe = Pipe(spark, topics, tmp_path, dedup.JOB, "--within", "10 minutes", "--source", source)
    group = f"of-{pipe.source}"
    pipe.arguments += ["--kafka-option", f"group.id={group}"] if source == "gregor" else []
    chance = random.Random(2)
    unique = [Event(b"\xff%d" % number, None, START + number * SECOND) for number in range(60)]
    first = unique[:40] + chance.choices(unique[:40], k=30)
    pipe.run(first)
    written = topics.read(pipe.target, 1)
    assert Counter(written) == {(None, event.value): 1 for event in unique[:40]}
    grow(topics, pipe.source, 2)
    behind = Event(b"behind", None, START - 20 * MINUTE)
    second = [event._replace(partition=1) for event in [*unique[40:], *chance.choices(unique, k=30), behind]]
    dropped = pipe.run(second)
    written = topics.read(pipe.target, 1)
    # Spark drops by the watermark of the batch before. Behind a connector in Java it runs one without data at an end.
    late = [] if dropped else [behind]
    assert Counter(written) == {(None, event.value): 1 for event in [*unique, *late]}
    assert dropped == (1 if source == "kafka" else 0)
    if source == "gregor":
        ends = {0: len(first), 1: len(second)}
        assert {at: committed_offset(topics.bootstrap, group, TopicPartition(pipe.source, at)) for at in ends} == ends


def test_dedup_knows_an_id_until_the_watermark_has_passed_it(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """As in its help: the event times of an id that is known are not compared."""
    pipe = Pipe(spark, topics, tmp_path, dedup.JOB, "--within", "10 minutes")
    beats = [Event(b"alive", "host", START + hour * 60 * MINUTE) for hour in range(6)]
    assert pipe.run(beats[:5]) == 0
    assert len(topics.read(pipe.target, 1)) == 1
    pipe.run(beats[5:])
    assert len(topics.read(pipe.target, 1)) == 2


def test_route_filters_maps_and_keeps_bytes(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    pipe = Pipe(spark, topics, tmp_path, route.JOB, "--where", "key IS NULL OR key != 'skip'")
    rest = topics.create(1)
    pipe.arguments += ["--to", f"CASE WHEN length(value) = 1 THEN '{rest}' END"]
    topics.produce(pipe.source, [b"\xff\x00", None, b""], 0, "k", [("h", b"1")])
    pipe.run([Event(b"no key"), Event(b"skipped", "skip"), Event(b"1", "k")])
    assert topics.read(pipe.target, 1) == [(b"k", b"\xff\x00"), (b"k", None), (b"k", b""), (None, b"no key")]
    assert topics.read(rest, 1) == [(b"k", b"1")]


def test_route_maps_json_and_infers_its_schema(
    spark: SparkSession, topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = Pipe(spark, topics, tmp_path, route.JOB, "--value-format", "json", "--schema-registry")
    pipe.arguments += ["--set-key", "value.user", "--set-value", "struct(value.n + 1 AS n, value.tags)"]
    pipe.run([Event(b"\0\0\0\0\7" + json.dumps({"user": "a", "n": 1, "tags": ["x"]}).encode())])
    assert "inferred --schema 'n bigint, tags array<string>, user string'" in capsys.readouterr().err
    pipe.run([Event(b'\0\0\0\0\7{"user": "b", "n": 2, "more": true}')])
    assert "inferred" not in capsys.readouterr().err
    assert topics.read(pipe.target, 1) == [(b"a", b'{"n":2,"tags":["x"]}'), (b"b", b'{"n":3}')]


def test_sql_groups_and_continues(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    pipe = Pipe(
        spark, topics, tmp_path, statement.JOB, "--value-format", "json", "--schema", "country STRING, amount BIGINT"
    )
    table = statement.table_name(pipe.source)
    query = f"SELECT value.country AS key, count(*) AS orders, sum(value.amount) AS amount FROM {table} GROUP BY 1"
    pipe.arguments += ["--query", query]
    chance = random.Random(3)
    rows = [{"country": chance.choice("xyz"), "amount": chance.randrange(100)} for _ in range(80)]
    pipe.run([Event(json.dumps(row).encode()) for row in rows[:50]])
    pipe.break_off()
    pipe.run([Event(json.dumps(row).encode(), partition=1) for row in rows[50:]])
    found = {row["key"]: (row["orders"], row["amount"]) for row in json_rows(topics, pipe.target)}
    orders = Counter(row["country"] for row in rows)
    amounts = {country: sum(row["amount"] for row in rows if row["country"] == country) for country in orders}
    assert found == {country: (orders[country], amounts[country]) for country in orders}


@pytest.mark.parametrize("sink", ["topic", "exactly-once"])
def test_sql_writes_to_the_output_topic_only(spark: SparkSession, topics: Topics, tmp_path: Path, sink: str) -> None:
    pipe = Pipe(spark, topics, tmp_path, statement.JOB, "--mode", "append")
    grow(topics, pipe.source, 2)
    pipe.arguments += ["--query", f"SELECT * FROM {statement.table_name(pipe.source)} WHERE value LIKE 'urgent%'"]
    if sink == "exactly-once":
        pipe.write_exactly_once()
    events = [Event(b"urgent", "k"), Event(b"not", "k"), Event(b"urgent, too", "k", partition=1)]
    pipe.run(events)
    assert len(topics.read(pipe.source, 2)) == len(events)
    assert sorted(committed(topics, pipe.target)) == [(b"k", b"urgent"), (b"k", b"urgent, too")]


def test_sessions_are_written_when_they_are_finished(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    chart = tmp_path / "chart.svg"
    pipe = Pipe(spark, topics, tmp_path, sessions.JOB, "--gap", "60 seconds", "--watermark", "0 seconds")
    pipe.arguments += ["--chart", str(chart)]
    end = Event(b"", "end", START + 20 * MINUTE)
    chance = random.Random(4)
    times = [START + chance.randrange(15 * MINUTE) for _ in range(40)]
    events = [Event(b"", chance.choice("ab"), time) for time in times]
    pipe.run([*events, *events[:5]])
    pipe.break_off()
    behind = Event(b"", "a", START - 20 * MINUTE, 1)
    assert pipe.run([end, behind]) == 1
    expected = sessions_of([*events, *events[:5]], MINUTE)
    found = [
        (row["key"], epoch_ms(row["session_start"]), epoch_ms(row["session_end"]), row["count"])
        for row in json_rows(topics, pipe.target)
    ]
    assert set(found) == set(expected)  # those of the repeated batch come twice
    assert chart.read_text().count("<polyline") == 2


def test_an_exactly_once_sink_writes_no_row_of_a_repeated_batch_again(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    pipe = Pipe(spark, topics, tmp_path, route.JOB)
    pipe.write_exactly_once()
    first, second = ([Event(b"%d" % number) for number in numbers] for numbers in (range(20), range(20, 30)))
    pipe.run(first)
    pipe.break_off()
    pipe.run([event._replace(partition=1) for event in second])
    assert Counter(committed(topics, pipe.target)) == Counter((None, event.value) for event in [*first, *second])


def test_top_keys_of_windows(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    chart = tmp_path / "chart.svg"
    pipe = Pipe(spark, topics, tmp_path, top.JOB, "--count", "2", "--window", "60 seconds", "--chart", str(chart))
    chance = random.Random(5)
    events = [Event(b"", f"{int(chance.expovariate(0.3))}", START + chance.randrange(3 * MINUTE)) for _ in range(300)]
    pipe.write_exactly_once()
    pipe.run(events[:150])
    first = len(pipe.committed_rows())
    pipe.break_off()
    pipe.run([event._replace(partition=1) for event in events[150:]])
    rows = [((epoch_ms(row["window_start"]), row["rank"]), row["count"]) for row in pipe.committed_rows()]
    found = dict(rows)
    assert len(rows) == first + len(dict(rows[first:]))
    windows = {floor(event.time_ms, MINUTE) for event in events}
    for start in windows:
        counts = Counter(event.key for event in events if floor(event.time_ms, MINUTE) == start)
        assert [found[start, 1], found[start, 2]] == [count for _, count in counts.most_common(2)]
    assert len(found) == 2 * len(windows)
    assert chart.read_text().count("<polyline") >= 2


def test_join_of_two_streams_within_a_time(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    other = topics.create(1)
    pipe = Pipe(spark, topics, tmp_path, two_topics.JOB, "--with", other, "--within", "30 seconds")
    pipe.write_exactly_once()
    chance = random.Random(6)
    lefts = [Event(b"l%d" % at, chance.choice("ab"), START + chance.randrange(5 * MINUTE)) for at in range(30)]
    rights = [Event(b"r%d" % at, chance.choice("ab"), START + chance.randrange(5 * MINUTE)) for at in range(30)]
    send(topics, other, rights[:15])
    pipe.run(lefts[:15])
    pipe.break_off()
    send(topics, other, rights[15:])
    pipe.run([event._replace(partition=1) for event in lefts[15:]])
    assert Counter((row["left_value"], row["right_value"]) for row in pipe.committed_rows()) == Counter(
        (left.value.decode(), right.value.decode())
        for left in lefts
        for right in rights
        if left.value and right.value and left.key == right.key and abs(left.time_ms - right.time_ms) <= 30 * SECOND
    )


def test_join_with_the_latest_value_of_a_key(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    table = topics.create(2)
    pipe = Pipe(spark, topics, tmp_path, two_topics.JOB, "--with", table, "--as-table", "--how", "left")
    send(
        topics, table, [Event(b"1", "a", START + 9), Event(b"2", "a", START), Event(b"1", "gone"), Event(None, "gone")]
    )
    send(
        topics, table, [Event(b"older", "a", START - 1, 1), Event(b"newer", "b", START, 1), Event(b"b", "b", START - 1)]
    )
    pipe.write_exactly_once()
    pipe.run([Event(b"x", key) for key in ("a", "b", "gone", "none")])
    pipe.break_off()
    grow(topics, table, 3)
    send(topics, table, [Event(b"3", "b", START + 1, 2), Event(b"back", "gone", partition=2)])
    pipe.run([Event(b"y", key, partition=1) for key in ("a", "b", "gone")])
    assert Counter((row["left_value"], row["key"], row["right_value"]) for row in pipe.committed_rows()) == Counter(
        [
            *(("x", "a", "2"), ("x", "b", "newer"), ("x", "gone", None), ("x", "none", None)),
            *(("y", "a", "2"), ("y", "b", "3"), ("y", "gone", "back")),
        ]
    )


def test_a_table_reads_only_what_was_appended(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(1)
    options = two_topics.JOB.parse(["-b", topics.bootstrap, "--topic", "left", "--with", topic, "--as-table"])
    send(topics, topic, [Event(b"%d" % number, f"{number % 10}", START) for number in range(100)])
    table = LatestTable(spark, options, topic, "key")

    def rows() -> dict[str, str]:
        return {row.table_key: row.table_value for row in table.rows().collect()}

    expected = {f"{number % 10}": f"{number}" for number in range(90, 100)}
    assert (rows(), table.offsets_read) == (expected, 100)
    assert (rows(), table.offsets_read) == (expected, 100)
    grow(topics, topic, 2)
    send(topics, topic, [Event(None, "0", START), Event(b"new", "1", START), Event(b"other", "2", START + 1, 1)])
    del expected["0"]
    expected |= {"1": "new", "2": "other"}
    assert (rows(), table.offsets_read) == (expected, 103)
