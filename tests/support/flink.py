"""Flink in an environment of its own, and jobs of it as processes.

It fills 400 MB of .cache, most of it the Java libraries of Flink, which come as a Python package. As a program
(`.ci/run`) it installs them, so that no test's time is spent on that.
"""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from tests.support.processes import ROOT, clean_environment

FLINK = "2.2.1"
CONNECTOR = "5.0.0-2.2"
NEWEST_PYTHON = (3, 12)
"""For newer ones there is no package of this Flink."""
REQUIREMENTS = ROOT / "tests/support/flink-requirements.txt"
POM = ROOT / "tests/support/flink-pom.xml"
INSTALL_TIMEOUT_S = 300
JVM_FLAGS = "-Xmx512M -XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class Flink(NamedTuple):
    python: pathlib.Path
    connector: pathlib.Path


@functools.cache
def flink() -> Flink:
    """The Python that has PyFlink, and the jar of the Kafka connector; both are installed on first use."""
    if sys.version_info[:2] > NEWEST_PYTHON:
        pytest.skip(f"PyFlink {FLINK} needs Python {NEWEST_PYTHON[0]}.{NEWEST_PYTHON[1]} or older")
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("needs a JDK and Maven: apt-get install default-jdk-headless maven")
    folder = ROOT / f".cache/flink-{FLINK}"
    found = Flink(folder / "bin/python", folder / f"flink-sql-connector-kafka-{CONNECTOR}.jar")
    if found.connector.exists():
        return found
    # The jar comes last: where it is, everything is.
    shutil.rmtree(folder, ignore_errors=True)
    _run(sys.executable, "-m", "venv", str(folder))
    packages = ("-m", "pip", "install", "-q", "--no-deps", "--no-cache-dir", "--only-binary", ":all:")
    _run(str(found.python), *packages, "--disable-pip-version-check", "-r", str(REQUIREMENTS))
    repository = f"-Dmaven.repo.local={ROOT / '.cache/maven'}"
    goal = ("dependency:copy-dependencies", "-DincludeArtifactIds=flink-sql-connector-kafka")
    _run(
        *("mvn", "-q", "-B", "-f", str(POM), repository, f"-Dconnector.version={CONNECTOR}"),
        *(*goal, f"-DoutputDirectory={folder}"),
    )
    return found


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=INSTALL_TIMEOUT_S)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


class FlinkJob:
    """A PyFlink program with its JVM, in which Flink's own small cluster runs; a context manager."""

    def __init__(self, program: pathlib.Path, folder: pathlib.Path) -> None:
        self.output = folder / "job.out"
        self._program = program
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, arguments: Sequence[str]) -> None:
        logs = self._folder / "flink-logs"
        logs.mkdir(exist_ok=True)
        environment = {
            **clean_environment(),
            "FLINK_LOG_DIR": str(logs),
            "JVM_ARGS": JVM_FLAGS,
            # Otherwise PyFlink starts a server of Beam for Python functions, of which there are none.
            "_python_worker_execution_mode": "process",
        }
        command = [str(flink().python), str(self._program), *arguments]
        with self.output.open("ab") as output:
            # The JVM is a child of the Python process: they are killed as a group.
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """Return what the program printed, and the end of Flink's log."""
        logs = [path.read_text(errors="replace")[-4000:] for path in (self._folder / "flink-logs").glob("*.log")]
        return "\n".join([self.output.read_text(errors="replace"), *logs])

    def kill(self) -> None:
        """SIGKILL, to the program and its JVM."""
        if self._process is not None and self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def __enter__(self) -> FlinkJob:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()


if __name__ == "__main__":
    print(flink().python)
