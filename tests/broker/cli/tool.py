"""The commands of `gregor` as a user calls them."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

from gregor.broker.__main__ import main
from tests.support.processes import ROOT, clean_environment


class Tool:
    """The `gregor` command with the address of a broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def start(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a command in a process of its own, for tests that end it by a signal."""
        command = [sys.executable, "-m", "gregor.broker", name, "--bootstrap-server", self._bootstrap, *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=ROOT, env=clean_environment(), stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def run(self, name: str, *arguments: str, stdin: str = "", code: int = 0) -> str:
        """Run a command in this process; return its standard output, or standard error if a failure is expected."""
        streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
        out, err = streams
        given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
        with mock.patch("sys.stdin", given), redirect_stdout(out), redirect_stderr(err):
            ended = main([name, "--bootstrap-server", self._bootstrap, *arguments])
        for stream in streams:
            stream.seek(0)
        written = err.read() if code else out.read()
        assert ended == code, f"exit code {ended}: {written}{err.read()}"
        return written
