"""The files of the jobs as spark-submit runs them, without Spark."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from gregor.spark_jobs.cli import JOBS
from gregor.spark_jobs.jobs.common.job import Job
from tests.support.processes import ROOT

FOLDER = ROOT / "spark_jobs" / "jobs"


@pytest.mark.parametrize("name", JOBS)
def test_a_python_without_gregor_is_named_with_the_remedy(name: str) -> None:
    script = FOLDER / f"{JOBS[name][0]}.py"
    done = subprocess.run([sys.executable, "-I", "-S", str(script)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{name}: gregor is not installed for {sys.executable}")
    assert "PYSPARK_PYTHON=.venv/bin/python spark-submit" in done.stderr


@pytest.mark.parametrize("name", JOBS)
def test_each_job_has_its_name_examples_and_a_summary(name: str) -> None:
    job: Job = import_module(f"gregor.spark_jobs.jobs.{JOBS[name][0]}").JOB
    assert job.name == name
    assert job.summary.endswith(".")
    assert f"gregor spark {name} " in job.examples


def test_each_file_is_a_job_of_the_command() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert files == {module for module, _ in JOBS.values()}
