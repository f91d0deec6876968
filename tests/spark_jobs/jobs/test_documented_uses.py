"""The commands of docs/spark.md for the uses of Kafka: arguments are accepted, and Spark resolves the expressions."""

from __future__ import annotations

import re
import shlex
from importlib import import_module

import pytest
from pyspark.sql import SparkSession

from gregor.spark_jobs.cli import JOBS
from gregor.spark_jobs.jobs.common.job import Job
from tests.support.processes import ROOT

USES = 7


def documented() -> list[list[str]]:
    section = (ROOT / "docs" / "spark.md").read_text().partition("## Uses")[2].partition("\n## ")[0]
    return [shlex.split(line)[2:] for line in re.findall(r"^gregor spark .*$", section, re.MULTILINE)]


def job_of(name: str) -> Job:
    job: Job = import_module(f"gregor.spark_jobs.jobs.{JOBS[name][0]}").JOB
    return job


def test_each_use_has_a_command() -> None:
    assert len(documented()) == USES


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.parametrize("words", documented(), ids=lambda words: " ".join(words[:3]))
def test_documented_commands_are_resolved(spark: SparkSession, words: list[str]) -> None:
    job = job_of(words[0])
    options = job.parse(words[1:])
    if job.prepare is not None:
        options = job.prepare(spark, options)
    job.build(spark, options)
