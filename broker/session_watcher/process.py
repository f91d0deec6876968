"""The watcher's program: reads the messages of its broker from descriptor 0 until that ends, then acts.

It imports what it needs only then: until the broker dies it holds about 10 MB.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from gregor.broker.session_watcher.messages import Watched
from gregor.broker.session_watcher.session_end import SessionNotClosed, close_session

if TYPE_CHECKING:
    from gregor.broker.session_watcher.session_end import Wrap

LONGEST_S = 10.0
"""A session is closed within this time or left to its timeout."""


def main() -> int:
    """Return 0 after a farewell or once the session is closed, 1 if it could not be closed."""
    # Signals to the group or the service of the broker are the broker's: its end ends this process.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watched = Watched()
    while data := os.read(0, 65536):
        watched.receive(data)
    return 0 if watched.session is None else _close(watched)


def _close(watched: Watched) -> int:
    session = watched.session
    assert session is not None
    limit_s = min(session.timeout_ms / 1000, LONGEST_S)
    cause = ""
    try:
        was_open = close_session(session, limit_s, _wrap(watched))
    except SessionNotClosed as error:
        cause, was_open = str(error), False

    from gregor.broker import log

    log.configure(label=watched.label)
    if cause:
        log.logger.error(
            "%s has ended without closing its ZooKeeper session %s, and no ZooKeeper closed it within %.0f s (%s):"
            " its partitions have no leader until it ends, zookeeper.session.timeout.ms=%d after its last ping",
            *(watched.broker, session.name, limit_s, cause, session.timeout_ms),
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


if __name__ == "__main__":
    sys.exit(main())
