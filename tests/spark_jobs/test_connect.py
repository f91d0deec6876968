"""Sessions of Spark Connect: a topic is read, and a job runs, through a server, by clients that start no JVM."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.spark_jobs.connector import connector_jars
from gregor.spark_jobs.installation import spark_home
from gregor.spark_jobs.java import require_java
from gregor.spark_jobs.session import SHORT_JOB
from tests.spark_jobs.jobs.running import json_rows
from tests.spark_jobs.topics import Topics
from tests.support.processes import clean_environment, free_port

pytestmark = [pytest.mark.very_slow, pytest.mark.jvm, pytest.mark.compat]

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
PATIENCE_S = 240
BUSY = "Timed out while waiting for the Python worker to connect back"
"""The server gives a Python worker ten seconds to start, which no setting changes: too few on a busy machine."""
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


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port, folder = free_port(), tmp_path_factory.mktemp("connect")
    jars = ",".join(str(jar) for jar in connector_jars(require_java()))
    command = [str(spark_home() / "bin" / "spark-submit"), "--class", SERVER, "--master", "local[1]", "--jars", jars]
    settings = {
        "spark.connect.grpc.binding.port": port,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    command += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    # Batches run in the Python of the server: that of the tests, which has gregor. From the archive in Spark's path
    # PySpark would be compiled at each start of a worker, for which it has ten seconds.
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    environment = {**clean_environment(), "SPARK_SUBMIT_OPTS": SHORT_JOB, "PYSPARK_PYTHON": str(python)}
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not answers(port):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            threading.Event().wait(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


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

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gregor.spark_jobs.cli", "windows", "--remote", server, "--once"]
        command += ["-b", topics.bootstrap, "--topic", source, "--source", "gregor", "--max-offsets-per-trigger", "4"]
        command += ["--checkpoint", str(tmp_path / "checkpoint"), "--conf", "spark.sql.shuffle.partitions=1"]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            done = subprocess.run(
                [*command, *arguments],
                cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=PATIENCE_S,
            )  # fmt: skip
            if BUSY not in done.stderr or time.monotonic() > deadline:
                return done

    to_target = ["--sink", "topic", "--output-topic", target]
    done = run(*to_target)
    assert done.returncode == 0, done.stderr
    assert "processed 6 records in 2 batches" in done.stderr
    rows = json_rows(topics, target)
    assert [(row["key"], row["count"]) for row in rows] == [("k", 4), ("k", 6)]
    other = run(*to_target, "--window", "1 hour")
    assert other.returncode == 1
    assert "was written with --window '1 minute', and this run has --window '1 hour'" in other.stderr
