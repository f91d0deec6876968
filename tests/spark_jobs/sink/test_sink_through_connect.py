"""The exactly-once sink through Spark Connect: tasks and the function of a query die, and each row is there once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.compat.records import until
from tests.spark_jobs.connect_server import BUSY, PATIENCE_S, connect_server
from tests.spark_jobs.jobs.running import committed, forget_last_commit
from tests.spark_jobs.sink.test_sink_kills import command_of
from tests.spark_jobs.topics import Topics
from tests.support.processes import ROOT, clean_environment

pytestmark = [
    pytest.mark.very_slow,
    pytest.mark.jvm,
    pytest.mark.compat,
    pytest.mark.by_day(2, group="other sessions of Spark"),
]

PROGRAM = Path(__file__).with_name("connect_program.py")
FUNCTION = b"pyspark.sql.connect.streaming.worker.foreach_batch_worker"
TASKS_START_AGAIN = "local[1,3]"
FENCED = r"another query \(id [\w-]+, run [\w-]+\) was started later with the transactional id 'through connect'"


class Server(NamedTuple):
    """A server of Spark Connect, and the folder that it runs in."""

    address: str
    folder: Path

    def functions(self) -> set[int]:
        """Return the processes of functions for foreachBatch."""
        processes = [int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit()]
        functions = [one for one in processes if FUNCTION in command_of(one)]
        return {one for one in functions if os.readlink(f"/proc/{one}/cwd") == str(self.folder)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with connect_server(folder, TASKS_START_AGAIN) as address:
        yield Server(address, folder)


class Query:
    """The runs of connect_program.py, and its input."""

    def __init__(self, topics: Topics, folder: Path, target: str) -> None:
        self._topics, self._folder, self._target = topics, folder, target
        self._log = folder / "client.log"
        self.rows: list[bytes] = []
        self.checkpoint = folder / "checkpoint"
        (folder / "in").mkdir(parents=True)

    def add_file(self, *rows: str) -> None:
        (self._folder / f".{rows[0]}").write_text("".join(f"{row}\n" for row in rows))
        (self._folder / f".{rows[0]}").rename(self._folder / "in" / f"{rows[0]}.txt")
        self.rows += [row.encode() for row in rows]

    def run_to_the_end(self, server: str) -> None:
        while (code := self._started(server, "once").wait(PATIENCE_S)) and BUSY in self._log.read_text():
            pass
        assert code == 0, self._log.read_text()

    def run_until_it_fails(self, server: str, fault: Callable[[], None], *rows: str) -> str:
        """Run until the first batch is committed, then let the fault happen; the next batch, of the given rows, fails.

        Return the log of the client.
        """
        client = self._started(server)
        try:
            while not self._has_committed(client):
                assert BUSY in self._log.read_text(), self._log.read_text()
                client = self._started(server)
            fault()
            self.add_file(*rows)
            assert client.wait(PATIENCE_S) == 1, self._log.read_text()
        finally:
            client.kill()
            client.wait()
        return self._log.read_text()

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


def values(topics: Topics, topic: str) -> list[bytes | None]:
    return [value for _, value in committed(topics, topic)]


def test_each_row_is_there_once_after_the_end_of_a_task_and_of_the_function(
    topics: Topics, server: Server, tmp_path: Path
) -> None:
    target = topics.create(1)
    query = Query(topics, tmp_path, target)
    before = server.functions()

    def kill_the_function() -> None:
        (function,) = server.functions() - before
        os.kill(function, signal.SIGKILL)

    query.add_file("a", "b", "c")
    query.run_until_it_fails(server.address, kill_the_function, "d", "e")
    died, refused, repeated = query.reports()
    assert died["records"] == repeated["records"] == 3
    assert "Spark has started a task again" in refused["failure"] and refused["repeatable"]
    query.run_to_the_end(server.address)
    assert values(topics, target) == query.rows
    forget_last_commit(query.checkpoint)  # as if the function had been killed before it
    query.add_file("f")
    query.run_to_the_end(server.address)
    assert values(topics, target) == query.rows
    assert [report["records"] for report in query.reports()[3:]] == [2, 1]


def test_a_query_with_another_checkpoint_ends_the_older_one(topics: Topics, server: Server, tmp_path: Path) -> None:
    target = topics.create(1)
    older, newer = (Query(topics, tmp_path / name, target) for name in ("older", "newer"))
    older.add_file("a", "b")
    newer.add_file("c")
    failure = older.run_until_it_fails(server.address, lambda: newer.run_to_the_end(server.address), "d")
    assert re.search(FENCED, failure), failure
    assert values(topics, target) == [b"a", b"b", b"c"]
