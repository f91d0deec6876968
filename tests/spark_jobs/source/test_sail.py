"""`format("gregor")` in Sail, an engine without a JVM that speaks the protocol of Spark Connect: a batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark_jobs.topics import Topics
from tests.support.processes import clean_environment

pytestmark = [pytest.mark.slow, pytest.mark.very_slow, pytest.mark.compat]

PATIENCE_S = 240
# A process of its own: a session of Spark Connect is one for the whole process.
PROGRAM = """
import sys
from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession
from gregor.spark_jobs.datasource import GregorDataSource
server = SparkConnectServer()
server.start()
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{server.listening_address[1]}").getOrCreate()
spark.dataSource.register(GregorDataSource)
options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]}
rows = spark.read.format("gregor").options(**options).load()
for row in sorted(rows.collect(), key=lambda row: (row.partition, row.offset)):
    print(row.partition, row.offset, row.value.decode(), round(row.timestamp.timestamp()))
print(rows.where("partition = 1").count())
spark.stop()
server.stop()
"""


def test_a_topic_is_read_as_a_batch(topics: Topics, tmp_path: Path) -> None:
    pytest.importorskip("pysail")
    topic = topics.create()
    topics.produce(topic, ["a", "b", "c"], timestamp_ms=5000)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, topics.bootstrap, topic],
        cwd=tmp_path, env={**clean_environment(), "TZ": "UTC"}, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["0 0 a 5", "0 1 c 5", "1 0 b 5", "1"]
