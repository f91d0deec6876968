"""TLS connections to ZooKeeper for the closing of a session."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gregor.config.security.tls import client_context
from gregor.config.security.zookeeper import ZooKeeperSecurity, zookeeper_security

if TYPE_CHECKING:
    from gregor.broker.session_watcher.session_end import Wrap
    from gregor.config.broker import BrokerConfig


_PREFIXES = ("zookeeper.connect", "zookeeper.ssl.")


def connection_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return those of a broker's settings that a connection to ZooKeeper needs."""
    return {key: value for key, value in settings.items() if key.startswith(_PREFIXES)}


def zookeeper_wrap(config: BrokerConfig) -> Wrap | None:
    """Return what makes a TLS connection of one to a server, if the settings `zookeeper.ssl.*` request that."""
    return wrap_of(zookeeper_security(config))


def wrap_of(security: ZooKeeperSecurity) -> Wrap | None:
    """Return what makes a TLS connection of one to a server; None where connections are in clear text."""
    if security.tls is None:
        return None
    context = client_context(security.tls)

    def wrap(connection: socket.socket, host: str) -> socket.socket:
        return context.wrap_socket(connection, server_hostname=host)

    return wrap
