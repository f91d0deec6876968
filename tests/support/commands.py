"""Commands of gregor that run until a signal ends them, in processes of their own."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import ROOT, clean_environment

PATIENCE_S = 120.0


@contextmanager
def alone_at_zookeepers_port() -> Iterator[None]:
    """Serialize commands that use the first free port from 2181 on: two that search at the same time find the same
    port."""
    with (Path(tempfile.gettempdir()) / "gregor-tests-zookeeper-port").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class RunningCommand:
    """`gregor <words>`, its output in a file below `folder`. A context manager, at whose end it is stopped."""

    def __init__(self, folder: Path, *words: str, environment: Mapping[str, str] | None = None) -> None:
        """`environment`: further variables."""
        self._output = folder / f"output-{time.monotonic_ns()}"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gregor.broker", *words],
                cwd=ROOT,
                env={**clean_environment(), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def said(self) -> str:
        return self._output.read_text()

    def until(self, text: str) -> str:
        """Wait until the output contains the text; return the output so far."""

        def holds() -> bool:
            assert self._process.poll() is None or text in self.said, self.said
            return text in self.said

        until(holds, lambda: f"{text!r} is said:\n{self.said}")
        return self.said

    def wait(self) -> int:
        """Until it ends by itself; the exit code."""
        return self._process.wait(PATIENCE_S)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        if self._process.poll() is None:
            self._process.send_signal(number)
        return self._process.wait(PATIENCE_S)

    def __enter__(self) -> RunningCommand:
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self.stop(signal.SIGTERM)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise


def until(holds: Callable[[], bool], what: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, f"not within {PATIENCE_S:.0f} s: {what()}"
        time.sleep(0.05)


def pid_of(said: str, name: str) -> int:
    return int(said.partition(f"{name} (pid ")[2].partition(")")[0])
