"""The cluster command around its JVMs: arguments, environment, and processes that end too early."""

import sys
import threading
from pathlib import Path

import pytest

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.launch import cluster
from gregor.spark_jobs.launch.cluster import Settings, SparkCluster, Stopped, daemon_environment, parse

MASTER_LINES = """\
print('INFO Master: Starting Spark master at spark://127.0.0.1:7')
print('INFO MasterWebUI: Bound MasterWebUI to 127.0.0.1, and started at http://localhost:8', flush=True)
"""


class FakeCluster(SparkCluster):
    """Runs Python programs in place of Spark's: one for the master, one for each worker."""

    def __init__(self, master: str, worker: str, folder: Path, stopped: threading.Event | None = None) -> None:
        super().__init__(Settings(workers=2), folder, stopped)
        self._program = sys.executable
        self.programs = {cluster.MASTER: master, cluster.WORKER: worker}

    def _start(self, name: str, main: str, arguments: list[str]):  # type: ignore[no-untyped-def]
        return super()._start(name, "-c", [self.programs[main], *arguments])


WAIT = "import sys; sys.stdout.flush(); sys.stdin.read(); import signal; signal.pause()"
REGISTER = "print('INFO Worker: Successfully registered with master spark://127.0.0.1:7', flush=True)\n"


def test_arguments() -> None:
    assert parse([], "x") == Settings(workers=2, cores=1, memory="1g", host="127.0.0.1", port=0)
    given = ["--workers", "3", "--cores", "2", "--memory", "512m", "--host", "10.0.0.1", "--port", "7077"]
    assert parse(given, "x") == Settings(3, 2, "512m", "10.0.0.1", 7077)


@pytest.mark.parametrize("wrong", [["--workers", "0"], ["--memory", "lots"], ["--port", "70000"], ["--cores", "-1"]])
def test_wrong_arguments_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(wrong, "x")
    assert repr(wrong[1]) in capsys.readouterr().err or "expected one argument" in capsys.readouterr().err


def test_everything_is_bound_to_the_host_and_nothing_accepts_jobs_by_http() -> None:
    environment = daemon_environment("127.0.0.1", {"SPARK_DAEMON_JAVA_OPTS": "-Dmine=1", "SPARK_DAEMON_MEMORY": "1g"})
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert environment["SPARK_DAEMON_MEMORY"] == "1g"
    assert "-Dspark.master.rest.enabled=false" in environment["SPARK_DAEMON_JAVA_OPTS"]
    assert environment["SPARK_DAEMON_JAVA_OPTS"].endswith("-Dmine=1")


@pytest.mark.slow
def test_addresses_are_read_from_the_log_and_all_processes_end(tmp_path: Path) -> None:
    with FakeCluster(MASTER_LINES + WAIT, REGISTER + WAIT, tmp_path) as running:
        assert running.url == "spark://127.0.0.1:7"
        assert running.web_page == "http://localhost:8"
        assert running.master is not None
        processes = [running.master, *running.workers]
        assert len(processes) == 3 and all(process.poll() is None for process in processes)
        reports: list[str] = []
        running.workers[0].kill()
        running.workers[0].wait()
        watching = threading.Thread(target=running.supervise, args=(reports.append,))
        watching.start()
        while not reports:
            watching.join(0.05)
        running.stopped.set()
        watching.join()
        assert reports == ["worker 1 ended with code -9; 1 of 2 workers are left"]
    assert all(process.poll() is not None for process in processes)


@pytest.mark.slow
def test_process_that_ends_during_the_start_is_reported_with_its_log(tmp_path: Path) -> None:
    fails = "import sys; print('port 7 is taken'); sys.exit(3)"
    with (
        pytest.raises(JobError, match=r"Spark's worker-1 ended with code 3 during its start\n    port 7 is taken"),
        FakeCluster(MASTER_LINES + WAIT, fails, tmp_path),
    ):
        pass


@pytest.mark.slow
def test_start_that_is_interrupted_ends_all(tmp_path: Path) -> None:
    stopped = threading.Event()
    stopped.set()
    running = FakeCluster(WAIT, WAIT, tmp_path, stopped)
    with pytest.raises(Stopped), running:
        pass
    assert running.master is not None and running.master.poll() is not None


@pytest.mark.slow
def test_cluster_without_master_or_workers_is_an_error(tmp_path: Path) -> None:
    with FakeCluster(MASTER_LINES + WAIT, REGISTER + WAIT, tmp_path) as running:
        for worker in running.workers:
            worker.kill()
            worker.wait()
        with pytest.raises(JobError, match="all workers have ended"):
            running.supervise(lambda line: None)
        assert running.master is not None
        running.master.kill()
        running.master.wait()
        with pytest.raises(JobError, match="the master ended with code -9"):
            running.supervise(lambda line: None)
