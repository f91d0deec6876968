"""`--once` with a limit of offsets per batch, with format("gregor"): by Spark's admission control from 4.2 on, before
by a fixed end. The test also runs in the rounds of Spark 4.0 and 4.2."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gregor.spark_jobs.jobs import windows
from gregor.spark_jobs.jobs.common.once import is_repeated
from tests.spark_jobs.jobs.running import MINUTE, Event, json_rows, run_job, send
from tests.spark_jobs.topics import Topics

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.compat, pytest.mark.by_day(2, group="long jobs of Spark")]

START = 1_700_000_000_000 // MINUTE * MINUTE


def interrupt(checkpoint: Path, batch: int) -> None:
    """Put a checkpoint back to where a kill during this batch leaves it."""
    for log, first in (("offsets", batch + 1), ("commits", batch)):
        for path in (checkpoint / log).iterdir():
            if int(path.name.strip(".").removesuffix(".crc")) >= first:
                path.unlink()


def test_all_that_is_there_is_read_in_batches_of_a_limit_also_after_an_interruption(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, target, checkpoint = topics.create(2), topics.create(1), tmp_path / "checkpoint"
    arguments = ["--topic", source, "--source", "gregor", "--max-offsets-per-trigger", "6", "--sink", "topic"]
    arguments += ["--output-topic", target, "--checkpoint", str(checkpoint)]

    def totals() -> dict[str, int]:
        return {row["key"]: row["count"] for row in json_rows(topics, target)}

    send(topics, source, [Event(b"x", "ab"[at % 2], START + at, at % 2) for at in range(10)])
    progress = run_job(spark, windows.JOB, topics, *arguments)
    assert (progress.records, progress.batches) == (10, 2)
    assert totals() == {"a": 5, "b": 5}
    interrupt(checkpoint, 1)
    send(topics, source, [Event(b"x", "b", START + at, at % 2) for at in range(3)])
    again = run_job(spark, windows.JOB, topics, *arguments).records
    assert again == (4 if is_repeated(spark, windows.JOB.parse([*arguments, "--once"])) else 7)
    assert again + run_job(spark, windows.JOB, topics, *arguments).records == 7
    assert totals() == {"a": 5, "b": 8}
