"""A checkpoint whose state has another schema than the query that continues it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.jobs import windows
from gregor.spark_jobs.jobs.common.checkpoint import IDENTITY
from gregor.spark_jobs.jobs.common.failures import explained
from tests.spark_jobs.jobs.running import Event, run_job, send
from tests.spark_jobs.topics import Topics

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.compat]


def test_another_schema_of_the_state_is_one_line_with_the_remedy(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, target, checkpoint = topics.create(1), topics.create(1), tmp_path / "checkpoint"
    arguments = ["--topic", source, "--sink", "topic", "--output-topic", target, "--checkpoint", str(checkpoint)]
    send(topics, source, [Event(b"1", "a")])
    run_job(spark, windows.JOB, topics, *arguments, "--sum", "total=CAST(value AS BIGINT)")
    identity = json.loads((checkpoint / IDENTITY).read_text())
    del identity["options"]["--sum"]  # as in a checkpoint of a version that did not have the option
    (checkpoint / f".{IDENTITY}.crc").unlink()
    (checkpoint / IDENTITY).write_text(json.dumps(identity))
    send(topics, source, [Event(b"2", "a")])
    with pytest.raises(JobError) as failed:
        run_job(spark, windows.JOB, topics, *arguments, "--sum", "total=CAST(value AS DOUBLE)")
    text = explained(str(failed.value))
    assert "\n" not in text
    assert text.endswith(
        "the state in the checkpoint has another schema than this query; give the schema and the options that it was "
        "written with, or start anew with another --checkpoint"
    )
    print(text)
