"""The base of the broker's worker processes: lines of JSON in and out, and an end with their parent."""

from __future__ import annotations

import json
import os
import signal
import sys
from abc import ABC, abstractmethod
from typing import IO, Any

from gregor.storage.fs.files import OsFiles


class ParentGone(Exception):
    """The process that waited for the result has ended."""


class Worker(ABC):
    """Reads jobs from `source` and writes results to `sink`. It ends with its input, and in the middle of a job as soon
    as its parent is gone."""

    def __init__(self, source: IO[bytes], sink: IO[bytes]) -> None:
        self._source = source
        self._sink = sink
        self._parent = os.getppid()
        self._files = OsFiles()

    @abstractmethod
    def serve(self) -> None:
        """Serve jobs until the input ends. Raises ParentGone."""

    def _check_parent(self) -> None:
        if os.getppid() != self._parent:
            raise ParentGone

    def _answer(self, data: bytes = b"", **message: Any) -> None:
        """Write a line, and `data` behind it."""
        self._sink.write(json.dumps(message, separators=(",", ":")).encode() + b"\n" + data)
        self._sink.flush()


def run_worker(kind: type[Worker]) -> None:
    """Run a worker process to its end."""
    # Ctrl-C in a terminal reaches the whole process group; the broker ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        kind(sys.stdin.buffer, sys.stdout.buffer).serve()
    except (ParentGone, BrokenPipeError):
        os._exit(1)  # without the last flush of a pipe that has no reader
