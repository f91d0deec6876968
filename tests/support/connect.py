"""Workers of Kafka Connect 4.3.1 as processes, and their REST interface."""

from __future__ import annotations

import functools
import json
import pathlib
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from typing import Any, Self

import pytest

from tests.support.jvm import class_path, small_jvm
from tests.support.kafka import kafka_jars
from tests.support.processes import ROOT

VERSION = "4.3.1"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0
HEAP_MB = 256

_LOG4J = """\
Configuration:
  Appenders:
    Console: {name: out, PatternLayout: {pattern: '%d{HH:mm:ss.SSS} %p %c{1} %m%n%throwable'}}
  Loggers:
    Root: {level: WARN, AppenderRef: {ref: out}}
"""

_WORKER = {
    # As in Apache Kafka's connect-distributed.properties.
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "true",
    "value.converter.schemas.enable": "true",
    "offset.storage.partitions": "3",
    "status.storage.partitions": "2",
    **{f"{kind}.storage.replication.factor": "3" for kind in ("config", "offset", "status")},
    "offset.flush.interval.ms": "1000",
    # A worker that leaves gives its connectors to the others at once, not after five minutes.
    "scheduled.rebalance.max.delay.ms": "0",
    "session.timeout.ms": "10000",
    "heartbeat.interval.ms": "1000",
    # After five seconds, the defaults, a worker gives up a task that ends slowly: its lines would be copied once more.
    "task.shutdown.graceful.timeout.ms": "60000",
    "offset.flush.timeout.ms": "60000",
    "plugin.discovery": "service_load",
}


@functools.cache
def connect_jars() -> pathlib.Path:
    """The folder with the jars of Connect that Apache Kafka's tools do not need, fetched by Maven on first use."""
    folder = kafka_jars(VERSION).parent / f"connect-{VERSION}"
    if any(folder.glob("connect-file-*.jar")):
        return folder
    if shutil.which("mvn") is None:
        pytest.skip("needs Maven to fetch Kafka Connect's jars: apt-get install maven")
    partial = folder.with_name(f"{folder.name}.partial")
    subprocess.run(
        [
            *("mvn", "-q", "-B", "-f", str(ROOT / "tests/support/connect-pom.xml")),
            *(f"-Dmaven.repo.local={ROOT / '.cache/maven'}", f"-Dkafka.version={VERSION}"),
            *("dependency:copy-dependencies", "-DexcludeTransitive=true", f"-DoutputDirectory={partial}"),
        ],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    partial.rename(folder)
    return folder


class ConnectProcess:
    """A JVM that runs a main class of Connect with a file of properties; its log is in `output`; a context manager."""

    def __init__(self, folder: pathlib.Path, name: str, main_class: str, properties: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.output = folder / f"{name}.out"
        self._process: subprocess.Popen[bytes] | None = None
        config, log4j = folder / f"{name}.properties", folder / "log4j2.yaml"
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        log4j.write_text(_LOG4J)
        jars = [kafka_jars(VERSION), connect_jars()]
        options = [*small_jvm(*jars, heap_mb=HEAP_MB), f"-Dlog4j2.configurationFile={log4j}"]
        self._command = ["java", *options, "-cp", class_path(jars), main_class, str(config)]

    def start(self) -> None:
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def log(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """SIGTERM: the worker commits its offsets and leaves its group."""
        assert self._process is not None, "not started"
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()


class Worker(ConnectProcess):
    """One worker in distributed mode, on three brokers. Workers with the same group name belong to the same cluster."""

    def __init__(
        self,
        folder: pathlib.Path,
        name: str,
        bootstrap: str,
        group: str,
        port: int,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        self.worker_id = f"localhost:{port}"
        properties = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            **{f"{kind}.storage.topic": f"{group}-{kind}" for kind in ("config", "offset", "status")},
            "listeners": f"http://{self.worker_id}",
            **_WORKER,
            **(overrides or {}),
        }
        super().__init__(folder, name, "org.apache.kafka.connect.cli.ConnectDistributed", properties)

    def curl(self, line: str, *expected: int) -> Any:
        """Run a command line of curl, in which this worker is localhost:PORT; return the decoded body.

        Repeat it for as long as the worker does not respond, or is in a rebalance (409, 500, 503, 404). A connector
        that is there already is the result of a request whose response was an error or was lost.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        first = True
        while True:
            status, body = self._run(line.replace("localhost:PORT", self.worker_id))
            if status in expected:
                return json.loads(body) if body else None
            if status == 409 and not first and "already exists" in body:
                return None
            assert status in (0, 404, 409, 500, 503), f"{line}: {status} {body}"
            assert self.is_running(), f"the worker ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"{line}: {status} {body}\n{self.log()}"
            first = False
            time.sleep(0.2)

    def _run(self, line: str) -> tuple[int, str]:
        """Return the HTTP status and the body; status 0 where the worker does not respond."""
        words = [*shlex.split(line), "-s", "--max-time", "30", "-w", "\\n%{http_code}"]
        said = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
        body, _, status = said.rpartition("\n")
        return int(status or 0), body

    def until_ready(self) -> None:
        """Wait until it has read its configuration topic and is in its group."""
        self.curl("curl http://localhost:PORT/connectors", 200)

    def until_tasks_run(self, name: str, on: Worker | None = None) -> str:
        """Wait until the connector and its only task run (on that worker); return the task's worker."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            status = self.curl(f"curl http://localhost:PORT/connectors/{name}/status", 200)
            parts = [status["connector"], *status["tasks"]]
            assert all(part["state"] != "FAILED" for part in parts), f"{status}\n{self.log()}"
            running = len(parts) == 2 and all(part["state"] == "RUNNING" for part in parts)
            if running and (on is None or all(part["worker_id"] == on.worker_id for part in parts)):
                return str(parts[1]["worker_id"])
            assert time.monotonic() < deadline, f"{status}\n{self.log()}"
            time.sleep(0.2)


if __name__ == "__main__":
    print(connect_jars())
