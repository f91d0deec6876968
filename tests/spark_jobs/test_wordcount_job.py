"""The word count job against a broker: each sink, with checkpoint and restart. Lines are made of plain words divided by
single spaces, so that the expected counts are a Counter over str.split()."""

import random
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.jobs.common.sources import stream_options
from gregor.spark_jobs.jobs.wordcount import Options, start
from gregor.spark_jobs.progress import run_to_end
from gregor.spark_jobs.sinks import counts_table, read_parquet_counts
from gregor.spark_jobs.source.lag import Lag
from tests.spark_jobs.topics import Topics

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.compat, pytest.mark.by_day(2)]

VOCABULARY = ["apple", "pear", "plum", "fig", "quince", "medlar", "sloe"]


def make_lines(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(VOCABULARY, k=chance.randrange(1, 9))) for _ in range(count)]


def plain_count(*parts: Sequence[str]) -> Counter[str]:
    return Counter(word for lines in parts for line in lines for word in line.split(" "))


def run_once(spark: SparkSession, options: Options) -> list[str]:
    """Runs the job over what is there; its progress lines."""
    told: list[str] = []
    source = stream_options(options) | {"kafka.bootstrap.servers": options.bootstrap_server}
    run_to_end(start(spark, options), told.append, timeout_s=300, lag=Lag(source, max_wait_s=60))
    return told


def forget_last_commit(checkpoint: Path) -> int:
    """Puts a checkpoint back to where a kill between a batch's output and its commit leaves it; that batch's number."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    return last


def test_console_shows_the_most_frequent_words(
    spark: SparkSession, topics: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create()
    lines = make_lines(40, 1)
    topics.produce(topic, lines)
    told = run_once(spark, Options(topic, topics.bootstrap, trigger="available-now", top=3))
    top = sorted(plain_count(lines).items(), key=lambda row: (-row[1], row[0]))[:3]
    assert capsys.readouterr().out == f"after batch 0:\n{counts_table(top)}\n"
    assert len(told) == 1 and told[0].startswith("batch 0: 40 records, 40 in this run, 0 waiting")


def test_console_continues_from_its_checkpoint(
    spark: SparkSession, topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create()
    options = Options(topic, topics.bootstrap, trigger="available-now", checkpoint=str(tmp_path / "checkpoint"))
    first, second = make_lines(30, 2), make_lines(20, 3)
    topics.produce(topic, first)
    run_once(spark, options)
    topics.produce(topic, second)
    assert len(run_once(spark, options)) == 1
    rows = [line.split() for line in capsys.readouterr().out.partition("after batch 1:\n")[2].splitlines()]
    assert {word: int(count) for word, count in rows} == plain_count(first, second)


def test_topic_gets_totals_through_stops_and_repeated_batches(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.create(), topics.create()
    options = Options(
        source,
        topics.bootstrap,
        sink="topic",
        output_topic=target,
        checkpoint=str(tmp_path / "checkpoint"),
        trigger="available-now",
        max_offsets_per_trigger=20,
    )
    parts = [make_lines(50, 4), make_lines(30, 5), make_lines(10, 6)]
    topics.produce(source, parts[0])
    assert [line.split(", ")[2] for line in run_once(spark, options)] == ["30 waiting", "10 waiting", "0 waiting"]
    assert topics.last_values(target) == plain_count(parts[0])
    topics.produce(source, parts[1])
    run_once(spark, options)
    assert topics.last_values(target) == plain_count(*parts[:2])
    forget_last_commit(tmp_path / "checkpoint")
    topics.produce(source, parts[2])
    run_once(spark, options)
    assert topics.last_values(target) == plain_count(*parts)


def test_parquet_holds_each_batch_once_through_stops_and_repeated_batches(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, path = topics.create(), tmp_path / "counts"
    options = Options(
        source,
        topics.bootstrap,
        sink="parquet",
        output_path=str(path),
        trigger="available-now",
        max_offsets_per_trigger=20,
    )

    def totals() -> dict[str, int]:
        return {row["word"]: row["count"] for row in read_parquet_counts(spark, str(path)).collect()}

    parts = [make_lines(50, 7), make_lines(30, 8), make_lines(10, 9)]
    topics.produce(source, parts[0])
    run_once(spark, options)
    assert totals() == plain_count(parts[0])
    topics.produce(source, parts[1])
    run_once(spark, options)
    assert totals() == plain_count(*parts[:2])
    repeated = forget_last_commit(path / "_checkpoint")
    # As a kill in the middle of writing leaves it: some of the batch's files, and none of its marks.
    for leftover in (path / f"batch_id={repeated}").glob("_SUCCESS"):
        leftover.unlink()
    topics.produce(source, parts[2])
    run_once(spark, options)
    assert totals() == plain_count(*parts)
    names = sorted(int(folder.name.partition("=")[2]) for folder in path.glob("batch_id=*"))
    assert names == list(range(len(names))) and len(names) >= 6


def test_parquet_refuses_batches_of_another_run(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, path = topics.create(), tmp_path / "counts"
    options = Options(source, topics.bootstrap, sink="parquet", output_path=str(path), trigger="available-now")
    topics.produce(source, ["a b"])
    run_once(spark, options)
    shutil.rmtree(path / "_checkpoint")
    with pytest.raises(JobError, match="contains batches of another run"):
        start(spark, options)


def test_a_running_query_is_stopped_and_started_while_records_arrive(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.create(), topics.create()
    options = Options(
        source,
        topics.bootstrap,
        sink="topic",
        output_topic=target,
        checkpoint=str(tmp_path / "checkpoint"),
        interval="100 milliseconds",
        max_offsets_per_trigger=25,
    )
    parts = [make_lines(60, 10), make_lines(60, 11)]
    topics.produce(source, parts[0])
    query = start(spark, options)
    deadline = time.monotonic() + 180
    while not topics.last_values(target):
        assert time.monotonic() < deadline, "no counts came"
        time.sleep(0.05)
    query.stop()  # somewhere in the second or third batch of the first part
    topics.produce(source, parts[1])
    query = start(spark, options)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert topics.last_values(target) == plain_count(*parts)


def test_starting_at_the_end_counts_only_new_records(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create(), topics.create()
    topics.produce(source, ["old old old"])
    options = Options(
        source,
        topics.bootstrap,
        sink="topic",
        output_topic=target,
        checkpoint=str(tmp_path / "checkpoint"),
        starting_offsets="latest",
        interval="0 seconds",
    )
    query = start(spark, options)
    try:
        deadline = time.monotonic() + 180
        while not query.recentProgress:
            assert time.monotonic() < deadline, "the query reports nothing"
            time.sleep(0.05)
        topics.produce(source, ["new new", "newer"])
        query.processAllAvailable()
    finally:
        query.stop()
    assert topics.last_values(target) == {"new": 2, "newer": 1}


def test_missing_topic_is_reported(spark: SparkSession, topics: Topics) -> None:
    options = Options("no-such-topic", topics.bootstrap, trigger="available-now", source_options=IMPATIENT)
    with pytest.raises(JobError, match="UnknownTopicOrPartition"):
        run_once(spark, options)


IMPATIENT = {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "10"}
