"""The watcher's program: reads the messages of its broker from descriptor 0 until that ends, then acts.

Everything else is imported only then: until the broker dies, this process holds little more than the interpreter.
With the modules of JSON and sockets it would hold more than 12 MB on Python 3.13.
"""

from __future__ import annotations

import os
import signal


def main() -> int:
    """Return 0 after a farewell or once the session is closed, 1 if it could not be closed."""
    # Signals to the group or the service of the broker are the broker's: its end ends this process.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    received = b""
    while data := os.read(0, 65536):
        received = decisive(received + data)

    from gregor.broker.session_watcher.closing import end_session

    return end_session(received)


def decisive(received: bytes) -> bytes:
    """Return the lines that decide what happens at the end: the first one (the broker), the last complete one (its
    newest session or its farewell), and what has arrived of the next."""
    lines = received.split(b"\n")
    return b"\n".join((lines[0], *lines[-2:])) if len(lines) > 3 else received
