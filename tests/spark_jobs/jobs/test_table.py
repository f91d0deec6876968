"""The job `table`: a topic as Parquet files, beside what was produced, with a repeated batch and a killed process."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.jobs import table
from tests.spark_jobs.jobs.running import Event, forget_last_commit, grow, run_job, send
from tests.spark_jobs.topics import Topics

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.compat]

START = 1_700_000_000_000
DAY = 86_400_000


def event(number: int, partition: int = 0) -> Event:
    value = json.dumps({"id": number, "text": f"t{number}"}).encode()
    return Event(value, f"k{number}", START + number * DAY // 4, partition)


def test_parquet_files_have_each_record_once(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """Over two runs, of which the second repeats the last batch, finds a grown topic and has a new column."""
    topic, path = topics.create(1), tmp_path / "clicks"
    arguments = ["--topic", topic, "--value-format", "json", "--format", "parquet", "--path", str(path)]
    arguments += ["--partition-by", "day"]
    send(topics, topic, [event(number) for number in range(10)])
    run_job(spark, table.JOB, topics, *arguments, "--schema", "id INT")
    forget_last_commit(path / "_checkpoint")
    grow(topics, topic, 2)
    send(topics, topic, [event(number, 1) for number in range(10, 16)])
    run_job(spark, table.JOB, topics, *arguments, "--schema", "id INT, text STRING")
    rows = spark.read.option("mergeSchema", "true").parquet(str(path)).collect()
    assert sorted((row["id"], row["key"], row["text"], row["_topic_partition"], row["_offset"]) for row in rows) == [
        (number, f"k{number}", f"t{number}" if number >= 10 else None, number // 10, number % 10)
        for number in range(16)
    ]
    assert {row["id"]: row["day"] for row in rows} == {
        number: datetime.fromtimestamp((START + number * DAY // 4) / 1000, UTC).date() for number in range(16)
    }
    with pytest.raises(JobError, match="the column id of .* is int, and the rows of this run have string"):
        run_job(spark, table.JOB, topics, *arguments, "--schema", "id STRING")
    with pytest.raises(JobError, match="contains rows of another run"):
        run_job(spark, table.JOB, topics, *arguments, "--schema", "id INT", "--checkpoint", tmp_path / "new")
