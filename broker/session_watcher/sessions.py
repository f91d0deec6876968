"""The ZooKeeper sessions of one broker: each is handed to the watcher and noted for the next process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gregor.broker.log import FORMAT_KEY, logger
from gregor.broker.session_watcher.predecessor import close_noted, forget_session, note_session, noted_session
from gregor.broker.session_watcher.session_end import Session
from gregor.broker.session_watcher.tls import connection_settings, zookeeper_wrap
from gregor.storage.fs.disk_errors import error_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gregor.broker.session_watcher.watcher import SessionWatcher
    from gregor.config.broker import BrokerConfig


class WatchedSessions:
    """`begin` before the store connects, `close_predecessor` once it has, `end` when it has closed its session."""

    def __init__(self, config: BrokerConfig, folder: str, watcher: SessionWatcher) -> None:
        """`folder`: the first data folder, which this process has locked."""
        self._config = config
        self._folder = folder
        self._watcher = watcher
        self._predecessor: Session | None = None

    def begin(self) -> None:
        """Start the watcher, and remember the session of the last process. Inside a running loop."""
        self._watcher.start(connection_settings(self._config.static_texts) | self._log_settings())
        self._predecessor = noted_session(self._folder)

    def _log_settings(self) -> dict[str, str]:
        """Return the settings by which the watcher logs as the broker does."""
        return {FORMAT_KEY: self._config[FORMAT_KEY], "broker.id": str(self._config.broker_id)}

    def begun(self, session_id: int, password: bytes, servers: Sequence[tuple[str, int]]) -> None:
        """Hand over a session that begins."""
        timeout_ms: int = self._config["zookeeper.session.timeout.ms"]
        session = Session(session_id, password, timeout_ms, tuple(servers))
        self._watcher.watch(session)
        try:
            note_session(self._folder, session)
        except OSError as error:
            logger.warning(
                "The ZooKeeper session cannot be noted (%s): if this broker dies together with its session watcher,"
                " its next process waits for the end of the session",
                error_text(error),
            )

    async def close_predecessor(self) -> None:
        """Close the session of the last process, if that has left one open."""
        if self._predecessor is not None:
            await asyncio.to_thread(self._close, self._predecessor)

    def _close(self, session: Session) -> None:
        close_noted(session, zookeeper_wrap(self._config))

    def end(self) -> None:
        """Part from the watcher: the store has closed its session."""
        forget_session(self._folder)
        self._watcher.close()
