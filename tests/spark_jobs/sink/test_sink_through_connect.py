"""The exactly-once sink through Spark Connect: tasks and the function of a query die, and each row is there once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.compat.records import until
from tests.spark_jobs.connect_server import BUSY, PATIENCE_S, connect_server
from tests.spark_jobs.jobs.running import committed, forget_last_commit
from tests.spark_jobs.sink.test_sink_kills import command_of
from tests.spark_jobs.topics import Topics
from tests.support.processes import ROOT, clean_environment

pytestmark = [pytest.mark.very_slow, pytest.mark.jvm, pytest.mark.compat]

PROGRAM = Path(__file__).with_name("connect_program.py")
FUNCTION = b"pyspark.sql.connect.streaming.worker.foreach_batch_worker"
TASKS_START_AGAIN = "local[1,3]"


def function_of(folder: Path) -> int:
    """Return the process of the function for foreachBatch, of the server that runs in the folder."""
    processes = [int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit()]
    functions = [one for one in processes if FUNCTION in command_of(one)]
    [found] = [one for one in functions if os.readlink(f"/proc/{one}/cwd") == str(folder)]
    return found


class Query:
    """The runs of connect_program.py, and its input."""

    def __init__(self, topics: Topics, folder: Path) -> None:
        self._topics, self._folder = topics, folder
        self._target = topics.create(1)
        self._log = folder / "client.log"
        self._rows: list[bytes] = []
        self.checkpoint = folder / "checkpoint"
        (folder / "in").mkdir()

    def add_file(self, *rows: str) -> None:
        (self._folder / f".{rows[0]}").write_text("".join(f"{row}\n" for row in rows))
        (self._folder / f".{rows[0]}").rename(self._folder / "in" / f"{rows[0]}.txt")
        self._rows += [row.encode() for row in rows]

    def run_to_the_end(self, server: str) -> None:
        while (code := self._started(server, "once").wait(PATIENCE_S)) and BUSY in self._log.read_text():
            pass
        assert code == 0, self._log.read_text()

    def run_until_the_function_is_killed(self, server: str, *rows: str) -> None:
        """Run until the first batch is committed; the next one, of the given rows, has no function and fails."""
        client = self._started(server)
        try:
            while not self._has_committed(client):
                assert BUSY in self._log.read_text(), self._log.read_text()
                client = self._started(server)
            os.kill(function_of(self._folder), signal.SIGKILL)
            self.add_file(*rows)
            assert client.wait(PATIENCE_S) == 1, self._log.read_text()
        finally:
            client.kill()
            client.wait()

    def _has_committed(self, client: subprocess.Popen[bytes]) -> bool:
        """Wait for the first batch; return False if the client has ended without it."""
        first = self.checkpoint / "commits" / "0"
        until(lambda: first.exists() or client.poll() is not None, "the first batch", PATIENCE_S)
        return first.exists()

    def _started(self, server: str, *mode: str) -> subprocess.Popen[bytes]:
        arguments = [server, self._topics.bootstrap, str(self._folder), self._target, *mode]
        with self._log.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, str(PROGRAM), *arguments],
                cwd=ROOT, env=clean_environment(), stdout=output, stderr=output,
            )  # fmt: skip

    def reports(self) -> list[dict[str, Any]]:
        """Return the reports of all tasks that have written a partition, or refused to."""
        return [json.loads(line) for line in (self._folder / "reports").read_text().splitlines()]

    def require_each_row_once(self) -> None:
        assert [value for _, value in committed(self._topics, self._target)] == self._rows


def test_each_row_is_there_once_after_the_end_of_a_task_and_of_the_function(topics: Topics, tmp_path: Path) -> None:
    query = Query(topics, tmp_path)
    query.add_file("a", "b", "c")
    with connect_server(tmp_path, TASKS_START_AGAIN) as server:
        query.run_until_the_function_is_killed(server, "d", "e")
        died, refused, repeated = query.reports()
        assert died["records"] == repeated["records"] == 3
        assert "Spark has started a task again" in refused["failure"] and refused["repeatable"]
        query.run_to_the_end(server)
        query.require_each_row_once()
        forget_last_commit(query.checkpoint)  # as if the function had been killed before it
        query.add_file("f")
        query.run_to_the_end(server)
    query.require_each_row_once()
    assert [report["records"] for report in query.reports()[3:]] == [2, 1]
