"""Jobs as processes of their own, whose topic grows under way, and which are killed in the middle of their work and
continued from their checkpoints. Each has an oracle in plain Python, duplicates, and a record behind the watermark."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from gregor.spark_jobs.jobs import (
    dedup,
    files_to_topic,
    generate,
    route,
    sessions,
    statement,
    table,
    top,
    two_topics,
    windows,
    wordcount,
)
from gregor.spark_jobs.jobs.common.job import Job
from tests.spark_jobs.jobs.killing import killed_in_the_middle
from tests.spark_jobs.jobs.running import (
    MINUTE,
    SECOND,
    Event,
    committed,
    committed_rows,
    epoch_ms,
    exactly_once,
    grow,
    run_job,
    send,
    sessions_of,
)
from tests.spark_jobs.jobs.running import start_of_window as floor
from tests.spark_jobs.topics import Topics

pytestmark = [
    pytest.mark.very_slow,
    pytest.mark.jvm,
    pytest.mark.compat,
    pytest.mark.by_day(2, group="kills under Spark"),
]

START = 1_700_000_000_000 // MINUTE * MINUTE
SPAN_MS = 5 * MINUTE
BATCH = 20
LIMIT = ("--max-offsets-per-trigger", str(BATCH), "--interval", "0 seconds")
EVENTS = 400
"""Twenty batches at least. The job is killed in about the fourth: it is under way then, on a slow machine, too."""
BEHIND = Event(b"behind", "a", START - 2 * 60 * MINUTE, 1)
"""A record two hours before all others. The job has read others when it comes, and no watermark here is that long."""


def random_events(chance: random.Random, count: int, partition: int = 0) -> list[Event]:
    """Records of three keys out of order within five minutes; each tenth is a duplicate of another one."""
    events = [
        Event(b"%d" % chance.randrange(1000), chance.choice("abc"), START + chance.randrange(SPAN_MS), partition)
        for _ in range(count - count // 10)
    ]
    return events + chance.choices(events, k=count // 10)


def has_read(checkpoint: Path, topic: str, partition: int) -> bool:
    """Whether a batch was planned that has records of the partition."""
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        for line in path.read_text().splitlines()[2:]:
            if line.startswith("{") and json.loads(line).get(topic, {}).get(str(partition), 0) > 0:
                return True
    return False


class Killed:
    """A job from a topic of one partition. It gets a second partition when the job has done two batches; the job is
    killed as soon as it reads from there, and continued in this process. It writes exactly once to a topic, unless a
    subclass has another output."""

    def __init__(self, spark: SparkSession, topics: Topics, folder: Path, job: Job) -> None:
        self.spark, self.topics, self.folder, self.job = spark, topics, folder, job
        self.source, self.target = topics.create(1), topics.create(1)
        self.checkpoint = folder / "checkpoint"
        self._has_grown = False

    def output(self) -> list[str]:
        """Return the arguments of the output and the checkpoint."""
        return exactly_once(self.target, self.checkpoint)

    def written(self) -> int:
        """Return the number of rows in the output."""
        return len(committed(self.topics, self.target))

    def run(
        self, arguments: list[str], first: list[Event], second: list[Event], last: list[Event] | None = None
    ) -> None:
        """Run over the first records, on the first partition; the second ones, on the second; and after the kill the
        last ones."""
        arguments = [*arguments, "--topic", self.source, *self.output()]
        log = self.folder / "log"

        def reads_the_second_partition() -> bool:
            if not self._has_grown and "batch 1:" in log.read_text():
                grow(self.topics, self.source, 2)
                send(self.topics, self.source, second)
                self._has_grown = True
            return self._has_grown and has_read(self.checkpoint, self.source, 1)

        send(self.topics, self.source, first)
        killed_in_the_middle(
            self.job.name,
            ["-b", self.topics.bootstrap, *arguments, *LIMIT],
            log,
            until=reads_the_second_partition,
            once=(),
        )
        written = self.written()
        send(self.topics, self.source, last or [])
        run_job(self.spark, self.job, self.topics, *arguments)
        assert written < self.written()

    def rows(self) -> list[dict[str, Any]]:
        return committed_rows(self.topics, self.target)


class KilledCounts(Killed):
    """The word count to a topic, which has the count of a word last where a batch is repeated."""

    def output(self) -> list[str]:
        return ["--sink", "topic", "--output-topic", self.target, "--checkpoint", str(self.checkpoint)]


class KilledTable(Killed):
    """A job to a table of Parquet files."""

    def output(self) -> list[str]:
        return ["--format", "parquet", "--path", str(self.folder / "table"), "--checkpoint", str(self.checkpoint)]

    def written(self) -> int:
        return len(self.rows())

    def rows(self) -> list[dict[str, Any]]:
        frame = self.spark.read.parquet(str(self.folder / "table"))
        return [row.asDict() for row in frame.collect()]


@pytest.fixture
def killed(spark: SparkSession, topics: Topics, tmp_path: Path) -> Callable[[Job], Killed]:
    return lambda job: Killed(spark, topics, tmp_path, job)


Kill = Callable[[Job], Killed]


def halves(seed: int) -> tuple[list[Event], list[Event]]:
    chance = random.Random(seed)
    return random_events(chance, EVENTS), random_events(chance, 60, 1)


def counts_of_windows(events: list[Event]) -> dict[tuple[int, str | None], int]:
    return Counter((floor(event.time_ms, MINUTE), event.key) for event in events)


def test_windows(killed: Kill) -> None:
    job = killed(windows.JOB)
    first, second = halves(1)
    job.run([], first, [*second, BEHIND])
    found = {(epoch_ms(row["window_start"]), row["key"]): row["count"] for row in job.rows()}
    assert found == counts_of_windows([*first, *second])


def test_top(killed: Kill) -> None:
    job = killed(top.JOB)
    first, second = halves(2)
    job.run(["--count", "3"], first, [*second, BEHIND])
    found = {(epoch_ms(row["window_start"]), row["rank"]): row["count"] for row in job.rows()}
    counts = counts_of_windows([*first, *second])
    expected = {
        (start, rank): count
        for start in {start for start, _ in counts}
        for rank, count in enumerate(sorted((counts[at] for at in counts if at[0] == start), reverse=True), 1)
    }
    assert found == expected


def test_sessions(killed: Kill) -> None:
    job = killed(sessions.JOB)
    first, second = halves(3)
    end = Event(b"", "end", START + 60 * MINUTE)
    job.run(["--gap", "4 seconds"], first, [*second, BEHIND], [end])
    found = Counter(
        (row["key"], epoch_ms(row["session_start"]), epoch_ms(row["session_end"]), row["count"]) for row in job.rows()
    )
    assert found == Counter(sessions_of([*first, *second], 4 * SECOND))


def test_dedup(killed: Kill) -> None:
    job = killed(dedup.JOB)
    first, second = halves(4)
    job.run([], first, [*second, *first[:20], BEHIND])
    found = Counter(committed(job.topics, job.target))
    assert found == Counter({((event.key or "").encode(), event.value) for event in [*first, *second]})


def test_join_of_two_streams(killed: Kill, topics: Topics) -> None:
    job = killed(two_topics.JOB)
    other = topics.create(1)
    chance = random.Random(5)
    lefts, more = halves(5)
    rights = random_events(chance, 100)
    send(topics, other, [BEHIND._replace(partition=0), *rights])
    job.run(["--with", other, "--within", "1 second"], lefts, [*more, BEHIND])
    found = Counter((row["left_value"], row["key"], row["right_value"]) for row in job.rows())
    assert found == Counter(
        ((left.value or b"").decode(), left.key, (right.value or b"").decode())
        for left in [*lefts, *more]
        for right in rights
        if left.key == right.key and abs(left.time_ms - right.time_ms) <= SECOND
    )


def test_join_with_a_table(killed: Kill, topics: Topics) -> None:
    job = killed(two_topics.JOB)
    table = topics.create(1)
    first, second = halves(6)
    send(topics, table, [Event(b"old", "a", START), Event(b"new", "a", START + 1), Event(b"other", "b", START)])
    job.run(["--with", table, "--as-table", "--how", "left"], first, second)
    latest = {"a": "new", "b": "other"}
    found = Counter((row["left_value"], row["key"], row["right_value"]) for row in job.rows())
    assert found == Counter(
        ((event.value or b"").decode(), event.key, latest.get(event.key or "")) for event in [*first, *second]
    )


def test_route(killed: Kill) -> None:
    job = killed(route.JOB)
    first, second = halves(7)
    job.run(["--where", "key != 'c'"], first, [*second, BEHIND])
    assert Counter(committed(job.topics, job.target)) == Counter(
        ((event.key or "").encode(), event.value) for event in [*first, *second, BEHIND] if event.key != "c"
    )


def test_sql(killed: Kill) -> None:
    job = killed(statement.JOB)
    first, second = halves(8)
    query = f"SELECT key, count(*) AS records FROM {statement.table_name(job.source)} GROUP BY key"
    job.run(["--query", query], first, [*second, BEHIND])
    found = {row["key"]: row["records"] for row in job.rows()}
    assert found == Counter(event.key for event in [*first, *second, BEHIND])


def test_wordcount(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    job = KilledCounts(spark, topics, tmp_path, wordcount.JOB)
    first, second = halves(9)
    job.run([], first, [*second, BEHIND])
    found = {word: int(count or b"") for word, count in committed(topics, job.target)}
    assert found == Counter(event.value for event in [*first, *second, BEHIND])


def test_table(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    job = KilledTable(spark, topics, tmp_path, table.JOB)
    first, second = halves(10)
    job.run([], first, [*second, BEHIND])
    found = sorted((row["_topic_partition"], row["_offset"], row["key"], row["value"]) for row in job.rows())
    assert found == [
        (partition, offset, event.key, (event.value or b"").decode())
        for partition, events in enumerate([first, [*second, BEHIND]])
        for offset, event in enumerate(events)
    ]


def test_generate(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    target = topics.create(1)
    arguments = ["--column", "id=id", "--rows", "4000", *exactly_once(target, tmp_path / "checkpoint")]
    rate = ["--rate", "100", "--interval", "200 milliseconds"]
    killed_in_the_middle(generate.JOB.name, ["-b", topics.bootstrap, *arguments, *rate], tmp_path / "log", once=())
    assert 0 < len(committed(topics, target)) < 4000
    run_job(spark, generate.JOB, topics, *arguments)
    ids = [row["id"] for row in committed_rows(topics, target)]
    assert sorted(ids) == list(range(4000))


def test_files(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    target, folder, log = topics.create(1), tmp_path / "in", tmp_path / "log"
    folder.mkdir()
    lines: list[str] = []

    def add_a_file() -> None:
        more = [f"{len(lines) + number}" for number in range(3)]
        (folder / f".{len(lines)}").write_text("\n".join(more))
        (folder / f".{len(lines)}").rename(folder / f"{len(lines)}.txt")
        lines.extend(more)

    def each_batch_has_a_file_until_the_fourth() -> bool:
        batches = log.read_text().count("batch ")
        if len(lines) <= 3 * batches:
            add_a_file()
        return batches > 3

    arguments = ["--path", str(folder), "--format", "text", *exactly_once(target, tmp_path / "checkpoint")]
    often = ["-b", topics.bootstrap, *arguments, "--interval", "0 seconds"]
    killed_in_the_middle(files_to_topic.JOB.name, often, log, until=each_batch_has_a_file_until_the_fourth, once=())
    add_a_file()
    run_job(spark, files_to_topic.JOB, topics, *arguments)
    assert Counter(value for _, value in committed(topics, target)) == Counter(line.encode() for line in lines)
