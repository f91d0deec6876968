"""The job `table` on Delta killed in the middle of its work, as a process of its own, and continued."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gregor.spark_jobs.jobs import table
from tests.spark_jobs.jobs.killing import killed_in_the_middle
from tests.spark_jobs.jobs.running import SECOND, Event, run_job, send
from tests.spark_jobs.tables.sessions import delta_session
from tests.spark_jobs.topics import Topics

pytestmark = [pytest.mark.very_slow, pytest.mark.jvm, pytest.mark.compat]

START = 1_700_000_000_000


def test_a_delta_table_has_the_latest_row_of_each_key_after_a_kill(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, path = topics.create(1, config={"cleanup.policy": "compact"}), tmp_path / "users"
    chance = random.Random(3)
    values = [None if chance.random() < 0.2 else b"%d" % number for number in range(120)]
    events = [Event(value, f"k{chance.randrange(30)}", START + at * SECOND) for at, value in enumerate(values)]
    send(topics, source, events)
    arguments = ["--topic", source, "--format", "delta", "--path", str(path), "--key-columns", "key"]
    several = ["--max-offsets-per-trigger", "15", "--conf", "spark.databricks.delta.snapshotPartitions=1"]
    killed_in_the_middle("table", ["-b", topics.bootstrap, *arguments, *several], tmp_path / "log", after="batch 0:")
    session = delta_session(spark)
    run_job(session, table.JOB, topics, *arguments, "--compact", "1")
    rows = [(row["key"], row["value"]) for row in session.read.format("delta").load(str(path)).collect()]
    expected = {event.key: event.value.decode() if event.value else None for event in events}
    assert sorted(rows) == sorted((key, value) for key, value in expected.items() if value)
