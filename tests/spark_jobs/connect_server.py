"""A server of Spark Connect as a process, whose Python is that of the tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gregor.spark_jobs.connector import connector_jars
from gregor.spark_jobs.installation import spark_home
from gregor.spark_jobs.java import require_java
from gregor.spark_jobs.launch.shared_classes import combined
from gregor.spark_jobs.session import SHORT_JOB
from tests.support.processes import clean_environment, free_port

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
PATIENCE_S = 240
BUSY = "Timed out while waiting for the Python worker to connect back"
"""The server gives a Python worker ten seconds to start, which no setting changes: too few on a busy machine."""


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def connect_server(folder: Path, master: str = "local[1]") -> Iterator[str]:
    """Yield the address of a server with its log in the folder."""
    port = free_port()
    jars = ",".join(str(jar) for jar in connector_jars(require_java()))
    command = [str(spark_home() / "bin" / "spark-submit"), "--class", SERVER, "--master", master, "--jars", jars]
    settings = {
        "spark.connect.grpc.binding.port": port,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    command += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    # Batches run in the Python of the server: that of the tests, which has gregor. From the archive in Spark's path
    # PySpark would be compiled at each start of a worker, for which it has ten seconds.
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    environment = {**clean_environment(), "SPARK_SUBMIT_OPTS": combined(SHORT_JOB), "PYSPARK_PYTHON": str(python)}
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not answers(port):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            threading.Event().wait(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_through(server: str, name: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a job through the server, again if the server was too busy to start its Python."""
    command = [sys.executable, "-m", "gregor.spark_jobs.cli", name, "--remote", server, *arguments]
    deadline = time.monotonic() + PATIENCE_S
    while True:
        done = subprocess.run(
            command, cwd=folder, env=clean_environment(), capture_output=True, text=True, timeout=PATIENCE_S
        )
        if BUSY not in done.stderr or time.monotonic() > deadline:
            return done
