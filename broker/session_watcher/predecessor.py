"""The session of the process that held the data folders before this one, in a file of the first data folder.

A broker that is started again at once finds its own registration in ZooKeeper, of a session that no process continues.
It holds the lock of the folder, so that process has ended; it closes the session and registers without a wait.

The file counts only where it was written: on the same boot of the same machine, in the same file. Of a folder that was
copied, or a machine that was cloned, the owner of the session may live.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

from gregor.broker.log import logger
from gregor.broker.session_watcher.messages import encode_session, session_of
from gregor.broker.session_watcher.session_end import Close, Session, SessionNotClosed, Wrap, close_session

FILE_NAME = "zookeeper-session.json"
LIMIT_S = 2.0
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class SessionNote:
    """The file. To be used with the folder locked."""

    def __init__(self, folder: str) -> None:
        """`folder`: the first data folder."""
        self._path = f"{folder}/{FILE_NAME}"

    def write(self, session: Session) -> None:
        """Write the file, readable by its owner only. Raises OSError."""
        if not (boot := _boot_id()):
            return
        self.remove()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(encode_session(session) + json.dumps(_origin(descriptor, boot)).encode() + b"\n")

    def remove(self) -> None:
        """Remove the file, if there is one."""
        with suppress(OSError):
            os.unlink(self._path)

    def read(self) -> Session | None:
        """Return the session that the file names, if it counts."""
        try:
            with open(self._path, "rb") as file:
                session, origin = map(json.loads, file.read().splitlines())
                return session_of(session) if origin == _origin(file.fileno(), _boot_id()) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None  # there is none, or half of one: the process died while it wrote


def close_noted(session: Session, wrap: Wrap | None, close: Close = close_session) -> None:
    """Close the session; blocks for LIMIT_S at most. A line in the log has the result."""
    try:
        was_open = close(session, LIMIT_S, wrap)
    except SessionNotClosed as error:
        logger.warning(
            "The ZooKeeper session %s of this broker's last process could not be closed (%s); the broker registers"
            " once it has ended, zookeeper.session.timeout.ms=%d after its last ping at the latest",
            *(session.name, error, session.timeout_ms),
        )
        return
    if was_open:
        logger.info("Closed the ZooKeeper session %s, which this broker's last process has left open", session.name)
    else:
        logger.info("The ZooKeeper session %s of this broker's last process has ended already", session.name)


def _origin(descriptor: int, boot: str) -> dict[str, Any]:
    found = os.fstat(descriptor)
    return {"boot": boot, "device": found.st_dev, "inode": found.st_ino}


def _boot_id() -> str:
    """Return what names this boot of this machine; "" where the system has no such name: the file is not used there."""
    try:
        with open(_BOOT_ID) as file:
            return file.read().strip()
    except OSError:
        return ""
