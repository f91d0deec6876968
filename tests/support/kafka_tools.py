"""Apache Kafka's command line tools in one JVM that runs many commands: each start of a JVM costs seconds."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.support.kafka import java_command
from tests.support.processes import ROOT

SOURCE = ROOT / "tests/support/java/KafkaTools.java"


class Said(NamedTuple):
    """How a tool ended."""

    code: int
    out: str
    err: str


class KafkaTools:
    """A context manager; `run` blocks until the tool has ended. `jar` precedes those of the release on the class
    path."""

    def __init__(self, version: str = "4.3.1", jar: Path | None = None) -> None:
        command = java_command(str(SOURCE), heap_mb=128, version=version)
        if jar is not None:
            place = command.index("-cp") + 1
            command[place] = f"{jar}{os.pathsep}{command[place]}"
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, main_class: str, *arguments: str) -> Said:
        """Return the output of the tool, whatever its exit code."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        words = [base64.b64encode(word.encode()).decode() or "-" for word in (main_class, *arguments)]
        process.stdin.write(" ".join(words) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline().split()
        assert len(answer) == 3, f"the JVM ended with {process.poll()} in {main_class} {' '.join(arguments)}"
        out, err = ("" if text == "-" else base64.b64decode(text).decode() for text in answer[1:])
        return Said(int(answer[0]), out, err)

    def __enter__(self) -> KafkaTools:
        return self

    def __exit__(self, *exception: object) -> None:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        process.kill()
        process.wait()
