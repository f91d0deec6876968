"""The work of a watcher whose broker has ended: it closes the ZooKeeper session, if there was no farewell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.session_watcher.messages import Watched
from gregor.broker.session_watcher.session_end import SessionNotClosed, close_session

if TYPE_CHECKING:
    from gregor.broker.session_watcher.session_end import Wrap

LONGEST_S = 30.0
"""A session is closed within this time or left to its timeout. It may be longer than the timeout: while no ZooKeeper
runs, no session ends, and at its return each lasts for its timeout again."""


def end_session(received: bytes) -> int:
    """Close the session of a broker that sent these messages, if it is open and there was no farewell. Returns the
    program's exit code: 1 if the session could not be closed."""
    watched = Watched(received)
    return 0 if watched.session is None else _close(watched)


def _close(watched: Watched) -> int:
    session = watched.session
    assert session is not None
    cause = ""
    try:
        was_open = close_session(session, LONGEST_S, _wrap(watched))
    except SessionNotClosed as error:
        cause, was_open = str(error), False

    from gregor.broker import log

    settings = watched.settings
    broker_id = int(settings.get("broker.id", "-1"))
    log.configure(label=watched.label, form=settings.get(log.FORMAT_KEY, log.TEXT), broker_id=lambda: broker_id)
    if cause:
        log.logger.error(
            "%s has ended without closing its ZooKeeper session %s, and no ZooKeeper closed it within %.0f s (%s):"
            " its partitions have no leader until it ends, zookeeper.session.timeout.ms=%d after its last ping",
            *(watched.broker, session.name, LONGEST_S, cause, session.timeout_ms),
        )
        return 1
    if was_open:
        log.logger.warning(
            "%s has ended without closing its ZooKeeper session %s; the session is closed, and the controller elects"
            " leaders for its partitions now",
            *(watched.broker, session.name),
        )
    return 0


def _wrap(watched: Watched) -> Wrap | None:
    """Return what makes a TLS connection to ZooKeeper, if the settings of the broker request one."""
    if "zookeeper.ssl.client.enable" not in watched.settings:
        return None  # as with most brokers, which saves the time of the import
    from gregor.broker.session_watcher.tls import zookeeper_wrap
    from gregor.config.broker import BrokerConfig

    return zookeeper_wrap(BrokerConfig(watched.settings))
