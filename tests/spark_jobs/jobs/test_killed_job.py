"""A stateful job killed in the middle of its work, as a process of its own, and continued from its checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from gregor.spark_jobs.session import SHORT_JOB
from tests.spark_jobs.jobs.running import MINUTE, SECOND, Event, json_rows, send
from tests.spark_jobs.jobs.running import start_of_window as floor
from tests.spark_jobs.topics import Topics
from tests.support.processes import clean_environment

pytestmark = [pytest.mark.very_slow, pytest.mark.jvm, pytest.mark.compat]

START = 1_700_000_000_000
RUN_S = 300
EVENTS = 2000
"""A hundred batches of the job that is killed in the third."""


def test_windows_are_right_after_a_kill(topics: Topics, tmp_path: Path) -> None:
    source, target, log = topics.create(1), topics.create(1), tmp_path / "log"
    events = [Event(b"x", "abc"[number % 3], START + number * SECOND) for number in range(EVENTS)]
    send(topics, source, events)
    command = [sys.executable, "-m", "gregor.spark_jobs.cli", "windows", "-b", topics.bootstrap, "--topic", source]
    command += ["--sink", "topic", "--output-topic", target, "--checkpoint", str(tmp_path / "checkpoint")]
    command += ["--conf", "spark.master=local[1]", "--conf", "spark.driver.memory=600m", "--once"]
    environ = clean_environment() | {"SPARK_SUBMIT_OPTS": SHORT_JOB}
    with log.open("wb") as stream:
        killed = subprocess.Popen(
            [*command, "--max-offsets-per-trigger", "20"],
            env=environ,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
        try:
            wait_for(log, "batch 2:", killed)
        finally:
            kill_group(killed)
    assert killed.returncode == -signal.SIGKILL, f"it was not under way any more:\n{log.read_text()}"
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == 0, done.stderr
    found = {
        (row["key"], round(datetime.fromisoformat(row["window_start"]).timestamp() * 1000)): row["count"]
        for row in json_rows(topics, target)
    }
    assert found == Counter((event.key, floor(event.time_ms, MINUTE)) for event in events)


def wait_for(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + RUN_S
    while text not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the job and its JVM, which is of the same session."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
