"""Sessions of Spark Connect: a topic is read, and a job runs, through a server, by clients that start no JVM."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark_jobs.connect_server import PATIENCE_S, connect_server, run_through
from tests.spark_jobs.jobs.running import json_rows
from tests.spark_jobs.topics import Topics
from tests.support.processes import clean_environment

pytestmark = [
    pytest.mark.very_slow,
    pytest.mark.jvm,
    pytest.mark.compat,
    pytest.mark.by_day(2, group="other sessions of Spark"),
]

CLIENT = """
import sys
from gregor.spark_jobs.session import open_session
from gregor.spark_jobs.sources import read_topic
spark = open_session("test", {"spark.remote": sys.argv[1]})
rows = read_topic(spark, sys.argv[2], sys.argv[3]).selectExpr("CAST(value AS STRING) AS v").orderBy("v").collect()
print("|".join(row["v"] for row in rows))
from pyspark import SparkContext
assert SparkContext._gateway is None
spark.stop()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield address


def test_topic_is_read_through_a_connect_server(server: str, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.produce(topic, ["plum", "fig", "pear"])
    client = subprocess.run(
        [sys.executable, "-c", CLIENT, server, topics.bootstrap, topic],
        cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert client.returncode == 0, client.stderr
    assert client.stdout == "fig|pear|plum\n"


def test_a_job_runs_through_a_connect_server(server: str, topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create(1), topics.create(1)
    topics.produce(source, ["x"] * 6, 0, "k", timestamp_ms=60_000)

    job = ["--once", "-b", topics.bootstrap, "--topic", source, "--source", "gregor", "--max-offsets-per-trigger", "4"]
    job += ["--checkpoint", str(tmp_path / "checkpoint"), "--conf", "spark.sql.shuffle.partitions=1"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_through(server, "windows", *job, *arguments, folder=tmp_path)

    to_target = ["--sink", "topic", "--output-topic", target]
    done = run(*to_target)
    assert done.returncode == 0, done.stderr
    assert "processed 6 records in 2 batches" in done.stderr
    rows = json_rows(topics, target)
    assert [(row["key"], row["count"]) for row in rows] == [("k", 4), ("k", 6)]
    other = run(*to_target, "--window", "1 hour")
    assert other.returncode == 1
    assert "was written with --window '1 minute', and this run has --window '1 hour'" in other.stderr
