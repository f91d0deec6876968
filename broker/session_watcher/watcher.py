"""The broker's side: starts the watcher, hands each new session over, and parts from it at the broker's end."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from typing import TYPE_CHECKING

from gregor.broker.log import logger
from gregor.broker.session_watcher.messages import encode_broker, encode_farewell, encode_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gregor.broker.session_watcher.session_end import Session

RESTART_PAUSE_S = 5.0
"""Between the end of a watcher that something else has ended and the start of the next."""
_PROGRAM = "from gregor.broker.session_watcher.process import main; raise SystemExit(main())"
_IMPORT_ROOT = str(Path(__file__).parents[3])
"""The folder that contains the package."""


class SessionWatcher:
    """Runs the watcher process. It is in a process group and session of its own: what a terminal or a shell sends to
    the broker's group does not end it."""

    def __init__(self, label: str = "") -> None:
        """`label`: stands before the watcher's lines in the log, as before the broker's."""
        self._label = label
        self._settings: dict[str, str] = {}
        self._session: Session | None = None
        self._process: Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._restart: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self, settings: Mapping[str, str]) -> None:
        """Start the process, inside a running loop. A failure is logged: a broker that dies is replaced at the end of
        its session then. `settings`: those of the connection to ZooKeeper and of the log."""
        self._settings = dict(settings)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = Popen(
                    # Without site-packages, whose .pth files import much; `-m` would import much too.
                    [sys.executable, "-S", "-P", "-c", _PROGRAM],
                    stdin=theirs.fileno(),
                    stdout=2,
                    start_new_session=True,
                    cwd="/",
                    env={**os.environ, "PYTHONPATH": _IMPORT_ROOT},
                )
        except OSError as error:
            ours.close()
            logger.warning(
                "The session watcher cannot be started (%s); if this broker dies, its partitions wait for"
                " zookeeper.session.timeout.ms",
                error.strerror or error,
            )
            return
        ours.setblocking(False)
        self._socket = ours
        asyncio.get_running_loop().add_reader(ours, self._ended)
        self._send(encode_broker(f"The broker (pid {os.getpid()})", self._label, self._settings))
        if self._session is not None:
            self._send(encode_session(self._session))

    def watch(self, session: Session) -> None:
        """Hand a new session over; the last one has ended."""
        self._session = session
        self._send(encode_session(session))

    def leave_session(self) -> None:
        """Part from the watcher without a farewell, as a broker that dies does: the session is still open."""
        if self._restart is not None:
            self._restart.cancel()
        self._disconnect()

    def close(self) -> None:
        """Part from the watcher, which ends: the broker has closed its session itself."""
        if self._restart is not None:
            self._restart.cancel()
        self._send(encode_farewell())
        process = self._process
        self._disconnect()
        if process is not None:
            process.wait()

    def _send(self, line: bytes) -> None:
        if self._socket is not None:
            # The watcher reads all the time, and a socket holds many lines. If it has ended, _ended is called.
            with suppress(BrokenPipeError, ConnectionResetError, BlockingIOError):
                self._socket.send(line)

    def _disconnect(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
        self._socket = self._process = None

    def _ended(self) -> None:
        """Start another one: something has ended the watcher, which sends nothing as long as it runs."""
        process = self._process
        assert process is not None
        self._disconnect()
        code = process.wait()
        logger.warning(
            "The session watcher (pid %d) has ended with status %d; another one starts in %g s",
            *(process.pid, code, RESTART_PAUSE_S),
        )
        self._restart = asyncio.get_running_loop().call_later(RESTART_PAUSE_S, self.start, self._settings)
