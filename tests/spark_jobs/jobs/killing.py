"""Jobs as processes of their own that are killed in the middle of their work."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gregor.spark_jobs.session import SHORT_JOB
from tests.spark_jobs.jobs.running import RUN_S
from tests.support.processes import ROOT, clean_environment

SMALL = ("--conf", "spark.master=local[1]", "--conf", "spark.driver.memory=600m")


def killed_in_the_middle(
    name: str,
    arguments: list[str],
    log: Path,
    after: str = "batch 2:",
    until: Callable[[], bool] | None = None,
    once: tuple[str, ...] = ("--once",),
) -> None:
    """Start a job over several batches, and kill it with its JVM by SIGKILL when its log has the text `after`, or when
    `until` returns True."""
    command = [sys.executable, "-m", "gregor.spark_jobs.cli", name, *arguments, *SMALL, *once]
    environ = clean_environment() | {"SPARK_SUBMIT_OPTS": SHORT_JOB}
    with log.open("wb") as stream:
        process = subprocess.Popen(command, env=environ, stdout=stream, stderr=stream, start_new_session=True)
        try:
            wait_for(until or (lambda: after in log.read_text()), log, process)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # the JVM is of the same session
            process.wait()
    assert process.returncode == -signal.SIGKILL, f"it was not under way any more:\n{log.read_text()}"


def kills_itself(step: str, number: int, name: str, arguments: list[str], log: Path) -> None:
    """Run a job until it has killed itself and its JVM after a step of its work, see killed_program.py."""
    program = [sys.executable, str(Path(__file__).with_name("killed_program.py")), step, str(number)]
    environ = clean_environment() | {"SPARK_SUBMIT_OPTS": SHORT_JOB}
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*program, name, *arguments, *SMALL, "--once"],
            cwd=ROOT, env=environ, stdout=stream, stderr=stream, start_new_session=True,
        )  # fmt: skip
        try:
            assert process.wait(RUN_S) == -signal.SIGKILL, log.read_text()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def wait_for(is_reached: Callable[[], bool], log: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + RUN_S
    while not is_reached():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.005)
