"""Ends a client whose library has locked itself up, which no signal and no timeout would end.

librdkafka 2.16 waits for itself without end when a broker is decommissioned while the answer about the end of a
leader's epoch fails: its main thread and the broker's thread each hold the lock that the other one needs
(https://github.com/confluentinc/librdkafka/issues/5476). A main thread that has nothing to do wakes up every second.
"""

from __future__ import annotations

import os
import pathlib
import threading
from collections.abc import Callable

STUCK_EXIT = 4
LOCKED_UP_S = 30.0
MAIN_THREAD = "rdk:main"


def switches_of_main(tasks: pathlib.Path = pathlib.Path("/proc/self/task")) -> dict[str, str] | None:
    """Return how often each main thread of the library has gone to sleep, by thread id; None if one is awake."""
    found = {}
    for task in tasks.glob("*"):
        try:
            if (task / "comm").read_text().strip() != MAIN_THREAD:
                continue
            status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines() if ":" in line)
        except OSError:
            continue  # it has just ended
        if not status["State"].strip().startswith("S"):
            return None
        found[task.name] = status["voluntary_ctxt_switches"].strip()
    return found


class Watch:
    """Notices that a main thread has not woken up between two observations."""

    def __init__(self, observe: Callable[[], dict[str, str] | None] = switches_of_main) -> None:
        self._observe = observe
        self._before: dict[str, str] | None = None

    def is_locked_up(self) -> bool:
        now, before = self._observe(), self._before
        self._before = now
        return now is not None and before is not None and any(before.get(name) == count for name, count in now.items())


def end_when_locked_up() -> None:
    """Start a thread that ends this process with STUCK_EXIT."""

    def run() -> None:
        watch, never = Watch(), threading.Event()
        while not watch.is_locked_up():
            never.wait(LOCKED_UP_S)
        os._exit(STUCK_EXIT)

    threading.Thread(target=run, daemon=True).start()
