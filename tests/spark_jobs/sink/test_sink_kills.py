"""The exactly-once sink while Python workers, executors, the driver and the broker are killed: each row is there once.

`--rounds 500` kills as often; without it there are 20 kills, of which two are on Apache Kafka.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.spark_jobs.launch.cluster import Settings, SparkCluster
from tests.compat.records import until
from tests.spark_jobs.sink.committed import committed_records
from tests.support.kafka_peer import SINGLE_NODE, KafkaPeer
from tests.support.processes import ROOT, BrokerProcess, clean_environment, free_port

pytestmark = [
    pytest.mark.very_slow,
    pytest.mark.jvm,
    pytest.mark.compat,
    pytest.mark.by_day(2, group="kills under Spark"),
]

PROGRAM = Path(__file__).with_name("sink_program.py")
ROWS_PER_FILE = 40
MIN_ROUNDS = 18
WAIT_S = 240.0
TOPIC = "out"
KINDS = ("worker", "broker", "executor", "worker", "driver", "worker", "broker", "worker", "executor", "worker")
LOCAL = "local[2,3]"
"""A master whose executor is the driver, and which runs a failed task three times."""
EXECUTOR = b"CoarseGrainedExecutorBackend"


class Program:
    """The query's processes, one after the other, and its input. On a cluster its tasks are in processes below those of
    Spark's workers."""

    def __init__(self, bootstrap: str, folder: Path, cluster: SparkCluster | None = None) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.files = 0
        self._master = LOCAL if cluster is None else cluster.url
        self._spark_workers = [] if cluster is None else [worker.pid for worker in cluster.workers]
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "in").mkdir()

    def add_file(self) -> None:
        """Add rows whose keys and values are their own; a file appears as a whole."""
        lines = [f"k{self.files}-{row} v{self.files}-{row}\n" for row in range(ROWS_PER_FILE)]
        part = self.folder / f".{self.files}"
        part.write_text("".join(lines))
        part.rename(self.folder / "in" / f"{self.files}.txt")
        self.files += 1

    def start(self) -> None:
        command = [sys.executable, str(PROGRAM), self.bootstrap, str(self.folder), TOPIC, self._master]
        out = self.folder / "program.out"
        before = out.stat().st_size if out.exists() else 0
        with out.open("ab") as stream:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=clean_environment(), stdout=stream, stderr=stream, start_new_session=True
            )
        until(lambda: b"started" in out.read_bytes()[before:] or not self.running, "the start of the query", WAIT_S)
        assert self.running, self.log()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        return (self.folder / "program.out").read_text(errors="replace")[-3000:]

    def planned_batches(self) -> int:
        """Return the number of batches that have begun."""
        return self._batches("offsets")

    def committed_batches(self) -> int:
        """Return the number of batches in Spark's commit log."""
        return self._batches("commits")

    def _batches(self, log: str) -> int:
        folder = self.folder / "checkpoint" / log  # of the last hundred batches
        return max((int(one.name) + 1 for one in folder.glob("[0-9]*")), default=0)

    def kill(self) -> None:
        """Kill the driver: its Python, its JVM, and their workers."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            for pid in descendants(self._process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()

    def workers(self) -> list[int]:
        """Return the Python processes that run tasks: the children of PySpark's daemon."""
        below = self._below()
        daemons = [pid for pid in below if b"pyspark.daemon" in command_of(pid)]
        return [pid for pid in below if pid in daemons and parent_of(pid) in daemons]

    def executors(self) -> list[int]:
        """Return the JVMs that run tasks, of a batch that has begun and is not committed; otherwise none."""
        if self.planned_batches() == self.committed_batches():
            return []
        return [pid for pid in self._below() if EXECUTOR in command_of(pid)]

    def _below(self) -> list[int]:
        assert self._process is not None
        return [pid for root in (self._process.pid, *self._spark_workers) for pid in descendants(root)]

    def end(self) -> None:
        """Let it write what is there, and end. A query that is failing because of the last kill is started again."""
        stop = self.folder / "stop"
        assert self._process is not None
        for left in (1, 0):
            if not self.running:
                self.start()
            stop.touch()
            code = self._process.wait(WAIT_S)
            stop.unlink()
            if code == 0:
                return
            assert left, f"exit code {code}: {self.log()}"


def command_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def parent_of(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return -1


def descendants(root: int) -> list[int]:
    """Return the processes below one, also those in sessions of their own."""
    parents = {int(one.name): parent_of(int(one.name)) for one in Path("/proc").iterdir() if one.name.isdigit()}
    found, left = [], [root]
    while left:
        parent = left.pop()
        children = [pid for pid, other in parents.items() if other == parent]
        found += children
        left += children
    return found


def require_each_row_once(bootstrap: str, files: int) -> None:
    expected = Counter(
        (f"k{file}-{row}".encode(), f"v{file}-{row}".encode()) for file in range(files) for row in range(ROWS_PER_FILE)
    )
    found = Counter((record.key(), record.value()) for record in committed_records(bootstrap, TOPIC))
    assert found - expected == Counter(), "rows that are there twice, or should not be there"
    assert expected - found == Counter(), "rows that are missing"


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 3, 1)])[TOPIC].result(60)


@contextlib.contextmanager
def program(bootstrap: str, folder: Path, cluster: SparkCluster | None = None) -> Iterator[Program]:
    one = Program(bootstrap, folder, cluster)
    try:
        yield one
    finally:
        one.kill()


def kill_a_worker(query: Program, numbers: random.Random) -> bool:
    return query.running and kill_one(query.workers(), numbers)


def kill_an_executor(query: Program, numbers: random.Random) -> bool:
    """Kill one somewhere in a batch; if all batches have ended before that, another one begins."""
    time.sleep(numbers.uniform(0, 0.5))
    if query.committed_batches() == query.files:
        query.add_file()
    return query.running and kill_one(query.executors(), numbers)


def kill_one(pids: list[int], numbers: random.Random) -> bool:
    """Kill one of the processes; return False if there is none."""
    for pid in pids and [numbers.choice(pids)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


def kill_in_turns(query: Program, rounds: int, restart_broker: Callable[[], None]) -> None:
    """Kill a worker, an executor, a broker or a driver at a time that is left to chance."""
    numbers = random.Random(7)
    for number in range(rounds):
        query.add_file()
        if not query.running:
            query.start()
        before = query.committed_batches()
        kind = KINDS[number % len(KINDS)]
        if kind == "worker":
            until(lambda: kill_a_worker(query, numbers) or not query.running, "a task", WAIT_S)
        elif kind == "executor":
            until(lambda: kill_an_executor(query, numbers) or not query.running, "a batch", WAIT_S)
        elif kind == "broker":
            restart_broker()
        else:
            query.kill()
        # The next kill hits another step: of this batch, or of the one after it.
        limit = time.monotonic() + numbers.uniform(0, 3)
        while time.monotonic() < limit and query.running and query.committed_batches() == before:
            time.sleep(0.02)


def test_each_row_is_there_once_after_kills(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (tmp_path / "cluster").mkdir()
    with (
        BrokerProcess(tmp_path / "broker") as broker,
        SparkCluster(Settings(workers=2, cores=1, memory="512m"), tmp_path / "cluster") as cluster,
        program(broker.bootstrap, tmp_path, cluster) as query,
    ):
        create_topic(broker.bootstrap)

        def restart() -> None:
            broker.kill()
            broker.start()

        kill_in_turns(query, max(MIN_ROUNDS, request.config.getoption("--rounds")), restart)
        query.add_file()
        query.end()
        require_each_row_once(broker.bootstrap, query.files)
    # A query has the executors 0 and 1; a higher number replaces one that was killed.
    assert [*tmp_path.glob("cluster/work-*/app-*/2")]


def test_each_row_is_there_once_on_apache_kafka(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "kafka").mkdir()
    file = tmp_path / "kafka" / "server.properties"
    text = SINGLE_NODE.format(port=port, controller=free_port(), folder=tmp_path / "kafka")
    file.write_text(text + "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n")
    bootstrap = f"127.0.0.1:{port}"
    with KafkaPeer(file, port), program(bootstrap, tmp_path) as query:
        create_topic(bootstrap)
        query.add_file()
        query.start()
        until(lambda: kill_a_worker(query, random.Random(1)), "a task", WAIT_S)
        until(lambda: query.committed_batches() >= 1, "the first batch", WAIT_S)
        query.add_file()
        until(lambda: kill_a_worker(query, random.Random(2)), "a task", WAIT_S)
        query.end()
        require_each_row_once(bootstrap, query.files)
