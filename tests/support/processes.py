"""A gregor broker in a process of its own, for tests that need real sockets and a real end."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

from tests.support.ports import free_port as free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0


def clean_environment() -> dict[str, str]:
    """The environment for a subprocess: no coverage, no PYTHON* settings of the test run, output not buffered."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV_"))}
    return {**kept, "PYTHONUNBUFFERED": "1"}


def answers_metadata(port: int) -> bool:
    """Whether a Metadata request (version 1, no topics) on this port gets an answer that names a controller."""
    request = b"\x00\x03\x00\x01\x00\x00\x00\x07\xff\xff\x00\x00\x00\x00"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(len(request).to_bytes(4, "big") + request)
            with connection.makefile("rb") as answers:
                size = int.from_bytes(answers.read(4), "big")
                body = answers.read(size)
    except OSError:
        return False
    # Ends in: controller id (int32), topic count (int32); a controller id of -1 means that none is elected yet.
    return len(body) >= 12 and body[:4] == b"\x00\x00\x00\x07" and body[-8:-4] != b"\xff\xff\xff\xff"


class BrokerProcess:
    """`gregor start` on a free port with its data in `folder`; stop() is SIGTERM, kill() is -9; a context manager."""

    start_timeout_s = START_TIMEOUT_S
    stop_timeout_s = STOP_TIMEOUT_S

    def __init__(self, folder: pathlib.Path, overrides: dict[str, str] | None = None, port: int | None = None) -> None:
        self.folder = folder
        self.port = port or free_port()
        self.overrides = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(folder / "data"),
            "group.initial.rebalance.delay.ms": "0",
            **(overrides or {}),
        }
        self.file: pathlib.Path | None = None
        """A server.properties to start with, besides the overrides."""
        self.environment: dict[str, str] = {}
        """More variables of its environment."""
        self.process: subprocess.Popen[bytes] | None = None
        self.output = folder / "broker.out"
        self.working_folder = ROOT

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "not started"
        return self.process.pid

    def command(self) -> list[str]:
        """Return the command, which runs in the working folder."""
        command = [sys.executable, "-m", "gregor.broker", "start"]
        if self.file is not None:
            command.append(str(self.file))
        for key, value in self.overrides.items():
            command += ["--override", f"{key}={value}"]
        return command

    def start(self, *, wait_until_ready: bool = True) -> BrokerProcess:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = self.command()
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=self.working_folder,
                env={**clean_environment(), **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + self.start_timeout_s
        while wait_until_ready and not answers_metadata(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the broker did not start:\n{self.log()}")
            time.sleep(0.02)
        return self

    def is_ready(self) -> bool:
        """Whether it answers, and knows a controller."""
        return answers_metadata(self.port)

    def log(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def stop(self) -> int:
        """SIGTERM; the exit code. A broker that does not end in time is killed and that is an error."""
        assert self.process is not None, "not started"
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"the broker did not stop within {self.stop_timeout_s:.0f} s:\n{self.log()}") from None

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None, "not started"
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        if self.process is not None and self.process.poll() is None:
            if exception[0] is None:
                self.stop()
            else:
                self.kill()
