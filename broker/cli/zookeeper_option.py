"""The option --zookeeper, which Kafka's tools had until 2.x: the addresses of the brokers are read from ZooKeeper.

The old tools wrote ZooKeeper's nodes themselves. Today the brokers do that work, with checks; the tools read only the
addresses that the brokers have registered: of each broker its first listener with the security protocol of the command.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gregor.broker.cli.client import load_file
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.zookeeper_security import FLAG, security_of_file, zk_tls_config_option
from gregor.config.definitions import ConfigError
from gregor.config.ensemble import parse_connect
from gregor.config.listeners import address_text
from gregor.config.security.zookeeper import ZooKeeperSecurity
from gregor.protocol.channel_security import PLAINTEXT
from gregor.protocol.client_security import protocol_of_client
from gregor.replication.store import nodes

if TYPE_CHECKING:
    from gregor.config.listeners import Listener

IN_CLEAR = ZooKeeperSecurity()
CONNECTION_TIMEOUT_MS = 10_000
SESSION_TIMEOUT_MS = 10_000


def zookeeper_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option; the command receives the addresses as `bootstrap`. Place it right below bootstrap_option."""

    @click.option(
        "--zookeeper",
        metavar="HOST:PORT,..",
        help="ZooKeeper of the brokers, instead of --bootstrap-server.",
    )
    @zk_tls_config_option
    @functools.wraps(command)
    def found(zookeeper: str | None, zk_tls_config_file: str | None, **given: Any) -> Any:
        if zookeeper is not None:
            if click.get_current_context().get_parameter_source("bootstrap") == ParameterSource.COMMANDLINE:
                raise click.UsageError("Give --bootstrap-server or --zookeeper, not both.")
            security, protocol = security_of_file(zk_tls_config_file), protocol_of(given)
            given["bootstrap"] = asyncio.run(brokers_of(zookeeper, security=security, protocol=protocol))
        elif zk_tls_config_file is not None:
            raise click.UsageError(f"{FLAG} needs --zookeeper.")
        return command(**given)

    return found


def protocol_of(given: Mapping[str, Any]) -> str:
    """Return the security protocol of the command's client settings. Raises CommandError."""
    texts = load_file(given["config_file"]) if given.get("config_file") else {}
    try:
        return protocol_of_client({**texts, **dict(given.get("client_properties", ()))})
    except ConfigError as error:
        raise CommandError(f"{error}.") from None


async def brokers_of(
    connect: str,
    timeout_ms: int = CONNECTION_TIMEOUT_MS,
    *,
    security: ZooKeeperSecurity = IN_CLEAR,
    protocol: str = PLAINTEXT,
) -> str:
    """Return the addresses of the brokers that are registered in a ZooKeeper (host:port[,host:port][/chroot]): their
    listeners with this security protocol.

    Raise CommandError if this is no such text, if it does not answer, or if no such broker is registered.
    """
    from gregor.replication.store.metadata_store import NoNode, StoreError
    from gregor.replication.store.zookeeper import Settings, ZooKeeperStore

    try:
        ensemble = parse_connect(connect.rstrip("/"), "--zookeeper")
        base = ensemble.chroot
        store = ZooKeeperStore(Settings(ensemble.addresses, SESSION_TIMEOUT_MS, timeout_ms, security=security))
        await store.start()
        try:
            names = await store.children(base + nodes.BROKER_IDS)
            found = await store.get_many([f"{base}{nodes.BROKER_IDS}/{name}" for name in sorted(names)])
        finally:
            await store.close()
    except NoNode:
        raise CommandError(
            f"there is no Kafka cluster in the ZooKeeper at {connect}: it has no {base}{nodes.BROKER_IDS}. Give the"
            " same address and chroot as the brokers' zookeeper.connect."
        ) from None
    except StoreError as error:
        remedy = "Give the address in the brokers' zookeeper.connect"
        if security.tls is None:
            remedy += f", and {FLAG} for a ZooKeeper with TLS"
        raise CommandError(f"{error}. {remedy}.") from None
    except ConfigError as error:
        raise CommandError(f"{error}.") from None
    listeners = [_listeners(node[0]) for node in found if node is not None]
    addresses = [next((one for one in of_one if one.security_protocol == protocol), None) for of_one in listeners]
    usable = [address_text(one.host, one.port) for one in addresses if one is not None]
    if not usable:
        others = sorted({one.security_protocol for of_one in listeners for one in of_one})
        remedy = f"set security.protocol of --command-config to {' or '.join(others)}" if others else "Start one"
        raise CommandError(
            f"no broker with a {protocol} listener is registered in ZooKeeper at {connect}."
            f" {remedy[0].upper()}{remedy[1:]}."
        )
    return ",".join(usable)


def _listeners(registration: bytes) -> Sequence[Listener]:
    try:
        return nodes.decode_broker(0, registration).endpoints
    except nodes.NodeFormatError:
        return []
