"""Members of a consumer group, each with another client, and how to run them.

Arguments, all of the form key=value: `bootstrap`, `group`, `client` (client id), `topics` (with commas; one that begins
with ^ is a pattern), `session_ms`, `assignor` (range or cooperative) and `protocol` (classic or consumer).

Lines: `owns N` whenever the number of partitions that the member has is another one; `closed` at the end.
Commands on standard input: `subscribe TOPICS`. When the input ends the member closes its consumer, and leaves.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping

from tests.support.foreign_clients import go_program, or_skip
from tests.support.kafka import java_command
from tests.support.processes import ROOT

JAVA_VERSION = "4.3.1"
TIMEOUT_S = 120
KINDS = ("java", "confluent", "franz")


@functools.cache
def _java_classes() -> pathlib.Path:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gregor-member-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = java_command("", version=JAVA_VERSION)
    source = ROOT / "tests/compat/members/Member.java"
    done = subprocess.run(
        ["javac", "-proc:none", "-cp", command[command.index("-cp") + 1], "-d", str(folder), str(source)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return folder


def command_of(kind: str, **arguments: object) -> list[str]:
    """Return the command. Without the client's toolchain the test is skipped."""
    words = [f"{key}={value}" for key, value in arguments.items()]
    if kind == "java":
        command = java_command("compat.Member", *words, version=JAVA_VERSION, heap_mb=96)
        command[command.index("-cp") + 1] += f"{os.pathsep}{_java_classes()}"
        return command
    if kind == "franz":
        return [str(or_skip(go_program, "franzmember")), *words]
    return [sys.executable, "-m", f"tests.compat.members.{kind}_member", *words]


class Member:
    """A running member; `owns` is the number of its partitions."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.owns = 0
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.lines.append(line.strip())
                word, _, number = line.strip().partition(" ")
                if word == "owns":
                    self.owns = int(number)

    def subscribe(self, *topics: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"subscribe {','.join(topics)}\n")
        self._process.stdin.flush()

    def leave(self) -> None:
        """Close the consumer, and wait for the end."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        assert self.lines[-1] == "closed", self.lines
        self.owns = 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self.owns = 0


@contextlib.contextmanager
def members(
    kind: str, of_client: Mapping[str, Mapping[str, object]] | None = None, **common: object
) -> Iterator[dict[str, Member]]:
    """Members by client id. The first use of a name starts one with the `common` arguments, and those of its own."""

    class Started(dict[str, Member]):
        def __missing__(self, client: str) -> Member:
            own = (of_client or {}).get(client, {})
            self[client] = Member(command_of(kind, **{"client": client, **common, **own}))
            return self[client]

    started = Started()
    try:
        yield started
    finally:
        for member in started.values():
            member.kill()


def wait_until_owned(counts: dict[Member, int]) -> None:
    """Wait until each member has this number of partitions."""
    deadline = time.monotonic() + TIMEOUT_S
    while not all(member.owns == count for member, count in counts.items()):
        assert time.monotonic() < deadline, f"not {[*counts.values()]}: {[member.lines for member in counts]}"
        time.sleep(0.05)
