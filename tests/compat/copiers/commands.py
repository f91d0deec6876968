"""The commands on standard input and the lines on standard output of the copiers in Python; see launch.py."""

from __future__ import annotations

import sys
import threading


class Commands:
    """Reads the commands in a thread of its own."""

    def __init__(self) -> None:
        self.stopped = False
        self._hold = ""
        self._resumed = threading.Semaphore(0)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            word, _, phase = line.strip().partition(" ")
            if word == "hold":
                self._hold = phase
            else:
                self._resume()
        self.stopped = True
        self._resume()

    def _resume(self) -> None:
        self._hold = ""
        self._resumed.release()

    def phase(self, name: str, number: int, what: object = "") -> None:
        """Print the phase; wait for the command to resume where this phase is to be held."""
        report(f"{name} {number} {what}".rstrip())
        if name == self._hold:
            report(f"held {name} {number}")
            self._resumed.acquire()


def report(line: str) -> None:
    print(line, flush=True)


def settings() -> dict[str, str]:
    """Return the arguments, which are all of the form key=value."""
    return dict(argument.split("=", 1) for argument in sys.argv[1:])


def output_partition(value: bytes, outputs: int) -> int:
    return int(value.partition(b".")[2]) % outputs


def copied(value: bytes, label: str, number: int, fate: str) -> bytes:
    return b"%s|%s-%d|%s" % (value, label.encode(), number, fate.encode())
