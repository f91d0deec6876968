"""A standalone Spark cluster on this machine, for trying jobs on it: a master and workers, from PySpark's jars.

`gregor spark cluster` runs it in the foreground. Logs and the working directories of the workers are in a temporary
folder, and disappear with the cluster.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.installation import spark_home
from gregor.spark_jobs.java import require_java
from gregor.spark_jobs.launch.shared_classes import combined

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
STARTED_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
STARTED_WEB_PAGE = re.compile(r"MasterWebUI\b.* started at (http://\S+)")
STARTED_WORKER = re.compile(r"Successfully registered with master")
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 20
POLL_S = 0.1
# A second server of the master, on a fixed port, accepts jobs by HTTP.
DAEMON_OPTIONS = "-Dspark.master.rest.enabled=false -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DAEMON_MEMORY = "256m"

EXAMPLES = """\
examples:
  # a master and two workers of one core; prints the address of the master
  gregor spark cluster

  # in another terminal
  gregor spark wordcount --topic lines --master spark://127.0.0.1:41327
  spark-submit --master spark://127.0.0.1:41327 spark_jobs/jobs/wordcount.py --topic lines --once
"""


@dataclass(frozen=True)
class Settings:
    """The size and the address of a cluster; port 0 is one that the system chooses."""

    workers: int = 2
    cores: int = 1
    memory: str = "1g"
    host: str = "127.0.0.1"
    port: int = 0


class Stopped(Exception):
    """The cluster was stopped before it had started."""


class SparkCluster:
    """A master and its workers; a context manager that ends all of them."""

    def __init__(self, settings: Settings, folder: Path, stopped: threading.Event | None = None) -> None:
        self.settings = settings
        self.folder = folder
        self.stopped = stopped or threading.Event()
        self.url = ""
        self.web_page = ""
        self.workers: list[subprocess.Popen[bytes]] = []
        self.master: subprocess.Popen[bytes] | None = None
        self._program = str(spark_home() / "bin" / "spark-class")
        self._environment = daemon_environment(settings.host)

    def start(self) -> None:
        """Start all processes, and return when the workers are registered.

        Raise JobError if one ends before, and Stopped if the event is set before.
        """
        host = self.settings.host
        address = ["--host", host, "--port", str(self.settings.port), "--webui-port", "0"]
        self.master = self._start("master", MASTER, address)
        self.url = self._wait_for(STARTED_MASTER, "master", self.master)
        self.web_page = self._wait_for(STARTED_WEB_PAGE, "master", self.master)
        for number in range(1, self.settings.workers + 1):
            size = ["--cores", str(self.settings.cores), "--memory", self.settings.memory]
            arguments = ["--host", host, "--port", "0", "--webui-port", "0", *size]
            arguments += ["--work-dir", str(self.folder / f"work-{number}"), self.url]
            self.workers.append(self._start(f"worker-{number}", WORKER, arguments))
        for number, worker in enumerate(self.workers, 1):
            self._wait_for(STARTED_WORKER, f"worker-{number}", worker)

    def log(self, name: str) -> Path:
        """Return the log of `master`, or of `worker-1` and so on."""
        return self.folder / f"{name}.log"

    def _start(self, name: str, main: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        with self.log(name).open("wb") as log:
            return subprocess.Popen(  # in its own session, so that Ctrl-C does not reach it before this process
                [self._program, main, *arguments],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait_for(self, pattern: re.Pattern[str], name: str, process: subprocess.Popen[bytes]) -> str:
        """Wait until the pattern is in the log of a process; return its last group."""
        log, deadline = self.log(name), time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            ended = process.poll()
            found = pattern.search(log.read_text(errors="replace"))
            if found is not None:
                return found.group(found.lastindex or 0)
            if ended is not None:
                raise JobError(f"Spark's {name} ended with code {ended} during its start\n{tail(log)}")
            if self.stopped.wait(POLL_S):
                raise Stopped
        raise JobError(f"Spark's {name} did not start within {START_TIMEOUT_S} s\n{tail(log)}")

    def supervise(self, report: Callable[[str], None]) -> None:
        """Wait until the event is set, and report workers that end. Raise JobError if the master or all workers end."""
        assert self.master is not None
        gone: set[int] = set()
        while not self.stopped.wait(POLL_S):
            if self.master.poll() is not None:
                raise JobError(f"the master ended with code {self.master.returncode}\n{tail(self.log('master'))}")
            for number, worker in enumerate(self.workers, 1):
                if number not in gone and worker.poll() is not None:
                    gone.add(number)
                    report(f"worker {number} ended with code {worker.returncode}; {self._left(gone)}")
            if len(gone) == len(self.workers):
                raise JobError(f"all workers have ended\n{tail(self.log('worker-1'))}")

    def _left(self, gone: set[int]) -> str:
        return f"{len(self.workers) - len(gone)} of {len(self.workers)} workers are left"

    def stop(self) -> None:
        """End all processes: the workers first, which end their executors."""
        for process in [*self.workers, *filter(None, [self.master])]:
            end(process)

    def __enter__(self) -> SparkCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()


def daemon_environment(host: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables of master and workers; their web pages are bound to the host, too."""
    options = combined(DAEMON_OPTIONS, environ.get("SPARK_DAEMON_JAVA_OPTS", ""))
    environment = {**environ, "SPARK_HOME": str(spark_home()), "SPARK_LOCAL_IP": host, "SPARK_PUBLIC_DNS": host}
    return {"SPARK_DAEMON_MEMORY": DAEMON_MEMORY, **environment, "SPARK_DAEMON_JAVA_OPTS": options}


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process, and kill it if that has no effect."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(timeout=STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tail(log: Path, lines: int = 15) -> str:
    """Return the last lines of a log, indented."""
    return "\n".join(f"    {line}" for line in log.read_text(errors="replace").splitlines()[-lines:])


def main(argv: Sequence[str] | None = None, prog: str = "gregor spark cluster") -> int:
    """Run a cluster until Ctrl-C or SIGTERM; return 0 then. Raise JobError if it ends by itself."""
    settings = parse(argv, prog)
    require_java()
    with (
        suppress(Stopped),
        stop_signals() as stopped,
        tempfile.TemporaryDirectory(prefix="gregor-spark-", ignore_cleanup_errors=True) as folder,
        SparkCluster(settings, Path(folder), stopped) as cluster,
    ):
        print(cluster.url, flush=True)
        report(f"workers: {settings.workers}, each with cores: {settings.cores}, memory: {settings.memory}")
        report(f"web page: {cluster.web_page}, logs: {folder}; Ctrl-C ends all")
        cluster.supervise(report)
    return 0


def report(line: str) -> None:
    """Print a line about the cluster; standard output has only its address."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT, SIGTERM and SIGHUP set during the block."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()

    saved = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield stopped
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)


def parse(argv: Sequence[str] | None, prog: str) -> Settings:
    """Parse the arguments; end the program with code 2 and a message if they are wrong."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Run a standalone Spark cluster on this machine: a master and workers.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    usual = Settings()
    add = parser.add_argument
    add("--workers", type=positive, default=usual.workers, metavar="N", help="worker processes; default: %(default)s")
    add("--cores", type=positive, default=usual.cores, metavar="N", help="cores of each worker; default: %(default)s")
    add(
        "--memory",
        type=memory,
        default=usual.memory,
        metavar="SIZE",
        help="memory of each worker for executors, such as 512m or 2g; an executor needs spark.executor.memory, which "
        "is 1g if a job does not set it. Default: %(default)s",
    )
    add("--host", default=usual.host, help="address to listen on; nothing protects it. Default: %(default)s")
    add("--port", type=port, default=usual.port, metavar="N", help="port of the master; default: a free one")
    return Settings(**vars(parser.parse_args(argv)))


def positive(text: str) -> int:
    """Parse a whole number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def port(text: str) -> int:
    """Parse a port; 0 is a free one."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def memory(text: str) -> str:
    """Check an amount of memory in Spark's notation."""
    if re.fullmatch(r"[1-9]\d*[mMgG]", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of memory such as 512m or 2g")
    return text
