"""What the broker's worker processes have in common: lines of JSON in and out, and an end with their parent."""

from __future__ import annotations

import json
import os
import signal
import sys
from abc import ABC, abstractmethod
from typing import IO, Any

from gregor.storage.fs.files import OsFiles


class ParentGone(Exception):
    """Nobody waits for the result any more."""


class Worker(ABC):
    """Serves jobs from `source`, answers to `sink`. It ends with its input, and in the middle of a job as soon as its
    parent is gone."""

    def __init__(self, source: IO[bytes], sink: IO[bytes]) -> None:
        self._source = source
        self._sink = sink
        self._parent = os.getppid()
        self._files = OsFiles()

    @abstractmethod
    def serve(self) -> None:
        """Until the input ends. Raises ParentGone."""

    def _check_parent(self) -> None:
        if os.getppid() != self._parent:
            raise ParentGone

    def _answer(self, data: bytes = b"", **message: Any) -> None:
        """A line, and `data` behind it."""
        self._sink.write(json.dumps(message, separators=(",", ":")).encode() + b"\n" + data)
        self._sink.flush()


def run_worker(kind: type[Worker]) -> None:
    """The life of a worker process."""
    # Ctrl-C in a terminal reaches the whole process group; the broker ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        kind(sys.stdin.buffer, sys.stdout.buffer).serve()
    except (ParentGone, BrokenPipeError):
        os._exit(1)  # not even the last flush of a pipe that nobody reads
