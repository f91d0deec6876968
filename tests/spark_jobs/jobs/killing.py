"""Jobs as processes of their own that are killed in the middle of their work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gregor.spark_jobs.session import SHORT_JOB
from tests.spark_jobs.jobs.running import RUN_S
from tests.support.processes import clean_environment

SMALL = ("--conf", "spark.master=local[1]", "--conf", "spark.driver.memory=600m")


def killed_in_the_middle(
    name: str, arguments: list[str], log: Path, after: str = "batch 2:", until: Callable[[], bool] | None = None
) -> None:
    """Start a job over several batches, and kill it with its JVM by SIGKILL when its log has the text `after`, or when
    `until` returns True."""
    command = [sys.executable, "-m", "gregor.spark_jobs.cli", name, *arguments, *SMALL, "--once"]
    environ = clean_environment() | {"SPARK_SUBMIT_OPTS": SHORT_JOB}
    with log.open("wb") as stream:
        process = subprocess.Popen(command, env=environ, stdout=stream, stderr=stream, start_new_session=True)
        try:
            wait_for(until or (lambda: after in log.read_text()), log, process)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # the JVM is of the same session
            process.wait()
    assert process.returncode == -signal.SIGKILL, f"it was not under way any more:\n{log.read_text()}"


def wait_for(is_reached: Callable[[], bool], log: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + RUN_S
    while not is_reached():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.005)
