"""The process of a broker's session watcher, as the tests find it: a child of the broker."""

from __future__ import annotations

import os
from pathlib import Path


def watcher_of(broker_pid: int) -> int | None:
    """Return the process of the watcher that is a child of a broker."""
    for entry in os.listdir("/proc"):
        try:
            command = Path(f"/proc/{entry}/cmdline").read_bytes()
            parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == broker_pid and b"session_watcher" in command:
            return int(entry)
    return None
