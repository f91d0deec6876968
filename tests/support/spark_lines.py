"""Environments with the other minor versions of Spark, and a round of tests in each of them.

An environment holds only PySpark, 450 MB below .cache; everything else is imported from the usual environment. As a
program (`.ci/run`) it installs them, so that no test's time is spent on that.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import sysconfig

from tests.support.processes import ROOT, clean_environment

LINES = ("4.0.5", "4.2.0")
"""Beside the usual one. 4.0 has Spark's first Python data sources, 4.2 admission control in them."""
ROUND = (
    "tests/spark_jobs/test_wordcount_job.py::test_topic_gets_totals_through_stops_and_repeated_batches",
    "tests/spark_jobs/test_sources.py::test_batch_write_is_read_back_by_another_client",
    "tests/spark_jobs/test_sources.py::test_streaming_read_in_batches_and_again_from_the_checkpoint",
    "tests/spark_jobs/source/test_datasource.py::test_rows_of_one_topic_and_wrong_options",
    "tests/spark_jobs/source/test_datasource.py::test_a_stream_with_restart_growth_and_a_topic_that_is_made_again",
    "tests/spark_jobs/jobs/test_once.py::"
    "test_all_that_is_there_is_read_in_batches_of_a_limit_also_after_an_interruption",
    "tests/spark_jobs/sink/test_sink_in_spark.py::"
    "test_each_record_is_written_once_although_the_driver_ends_behind_its_commit",
)
"""The tests that run in each environment, in one session of Spark: the connector, format("gregor") in batches and
streams that are stopped and started again, a job with state and a limit per batch, and the exactly-once sink."""
CONNECTOR_JARS = """
from gregor.spark_jobs.connector import connector_jars
from gregor.spark_jobs.java import require_java
connector_jars(require_java())
"""
INSTALL_TIMEOUT_S = 600
ROUND_TIMEOUT_S = 480
"""A round needs 68 to 92 s; the machine may be half as fast, and beside other tests."""


def python_with_spark(version: str) -> pathlib.Path:
    """The Python of the environment with that PySpark; it is installed on first use."""
    folder = ROOT / f".cache/spark-{version}-python{sys.version_info[0]}.{sys.version_info[1]}"
    python = folder / "bin/python"
    # This file comes last: where it is, everything is. Its folders are searched after PySpark's own.
    site = folder / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    libraries = site / "usual_environment.pth"
    if not libraries.exists():
        shutil.rmtree(folder, ignore_errors=True)
        run(sys.executable, "-m", "venv", str(folder))
        run(str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", f"pyspark=={version}")
        links = str(ROOT / ".links")
        libraries.write_text(f"{sysconfig.get_path('purelib')}\n{links}\n")
    run(str(python), "-c", CONNECTOR_JARS)
    return python


def run_round(version: str, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Run the round with that version of Spark; its temporary files are below the folder."""
    command = [
        str(python_with_spark(version)),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "faulthandler_timeout=0",
        # When the process ends, a thread of Spark may still hold connections of the last batch.
        "-W",
        "ignore::pytest.PytestUnraisableExceptionWarning",
        *ROUND,
    ]
    return subprocess.run(
        [*command, f"--basetemp={folder}"],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=ROUND_TIMEOUT_S,
    )


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=INSTALL_TIMEOUT_S)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


if __name__ == "__main__":
    for line in LINES:
        print(python_with_spark(line))
