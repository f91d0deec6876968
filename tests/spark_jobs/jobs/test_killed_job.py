"""Stateful jobs killed in the middle of their work, as processes of their own, and continued from their checkpoints."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gregor.spark_jobs.jobs import dedup, windows
from gregor.spark_jobs.jobs.common.job import Job
from tests.spark_jobs.jobs.killing import killed_in_the_middle
from tests.spark_jobs.jobs.running import MINUTE, SECOND, Event, json_rows, run_job, send
from tests.spark_jobs.jobs.running import start_of_window as floor
from tests.spark_jobs.topics import Topics

pytestmark = [pytest.mark.very_slow, pytest.mark.jvm, pytest.mark.compat]

START = 1_700_000_000_000
EVENTS, BATCH = 2000, 20
"""A hundred batches of a job that is killed in the third: it is under way then, on a machine that stalls, too."""


def kill_and_continue(spark: SparkSession, topics: Topics, folder: Path, job: Job, events: list[Event]) -> str:
    """Return the output topic of a job that is killed after three batches and continued in this process."""
    source, target = topics.create(1), topics.create(1)
    send(topics, source, events)
    arguments = ["--topic", source, "--sink", "topic", "--output-topic", target]
    arguments += ["--checkpoint", str(folder / "checkpoint")]
    limit = ["--max-offsets-per-trigger", str(BATCH)]
    killed_in_the_middle(job.name, ["-b", topics.bootstrap, *arguments, *limit], folder / "log")
    run_job(spark, job, topics, *arguments)
    return target


def test_windows_are_right_after_a_kill(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    events = [Event(b"x", "abc"[number % 3], START + number * SECOND) for number in range(EVENTS)]
    target = kill_and_continue(spark, topics, tmp_path, windows.JOB, events)
    found = {
        (row["key"], round(datetime.fromisoformat(row["window_start"]).timestamp() * 1000)): row["count"]
        for row in json_rows(topics, target)
    }
    assert found == Counter((event.key, floor(event.time_ms, MINUTE)) for event in events)


def test_duplicates_are_known_after_a_kill(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    numbers = [number % 150 for number in range(EVENTS)]
    events = [Event(b"%d" % number, None, START + at) for at, number in enumerate(numbers)]
    target = kill_and_continue(spark, topics, tmp_path, dedup.JOB, events)
    written = Counter(value for _, value in topics.read(target, 1))
    assert written.keys() == {event.value for event in events}
    assert set(written.values()) <= {1, 2}
    assert sum(written.values()) <= 150 + BATCH  # of the batch that was repeated
