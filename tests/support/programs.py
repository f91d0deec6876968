"""Foreign programs that run beside a test, in processes of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.processes import clean_environment


class RunningProgram:
    """A program that is started in `folder`, with its output in a file there. A context manager that kills it at the
    end."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
        """`environment`: further variables."""
        self._command = command
        self._folder = folder
        self._environment = {**clean_environment(), **(environment or {})}
        self._output = folder / f"{Path(command[0]).name}.out"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RunningProgram:
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def check(self) -> None:
        """Raise AssertionError with the output if it has ended."""
        assert self._process is not None and self._process.poll() is None, self.log()

    def log(self) -> str:
        """Return its output."""
        return self._output.read_text(errors="replace")
