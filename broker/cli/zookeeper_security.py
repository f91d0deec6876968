"""The security of a command's own connection to ZooKeeper: the settings `zookeeper.ssl.*` of a broker, as Kafka's tools
read them from the file of --zk-tls-config-file, and the user of `gregor.zookeeper.jaas.config`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from gregor.broker.cli.client import load_file
from gregor.broker.cli.errors import CommandError
from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.config.security.zookeeper import JAAS, ZooKeeperSecurity, zookeeper_security

FLAG = "--zk-tls-config-file"
_PREFIX = "zookeeper.ssl."


def zk_tls_config_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option --zk-tls-config-file; the command receives `zk_tls_config_file`."""
    return click.option(
        FLAG,
        metavar="FILE",
        help=f"Properties file with {_PREFIX}* and {JAAS} for the connection to ZooKeeper; other keys are ignored.",
    )(command)


def security_of_file(path: str | None) -> ZooKeeperSecurity:
    """Return the security that a file requests; clear text without a file. Raises CommandError."""
    if path is None:
        return ZooKeeperSecurity()
    try:
        return security_of_texts(load_file(path))
    except ConfigError as error:
        raise CommandError(f"{path}: {error}.") from None


def security_of_texts(texts: Mapping[str, str]) -> ZooKeeperSecurity:
    """Return the security that those of the settings request which are about ZooKeeper. Raises ConfigError."""
    own = {key: text for key, text in texts.items() if key.startswith(_PREFIX) or key == JAAS}
    return zookeeper_security(BrokerConfig(own)) if own else ZooKeeperSecurity()
