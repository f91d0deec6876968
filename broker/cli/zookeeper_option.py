"""The option --zookeeper, which Kafka's tools had until 2.x: the addresses of the brokers are read from ZooKeeper.

The old tools wrote ZooKeeper's nodes themselves. Today the brokers do that work, with checks; the tools read only the
addresses that the brokers have registered.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from gregor.broker.cli.errors import CommandError
from gregor.replication.store import nodes

CONNECTION_TIMEOUT_MS = 10_000
SESSION_TIMEOUT_MS = 10_000


def zookeeper_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option; the command receives the addresses as `bootstrap`. Place it right below bootstrap_option."""

    @click.option(
        "--zookeeper",
        metavar="HOST:PORT,..",
        help="ZooKeeper of the brokers, instead of --bootstrap-server.",
    )
    @functools.wraps(command)
    def found(zookeeper: str | None, **given: Any) -> Any:
        if zookeeper is not None:
            if click.get_current_context().get_parameter_source("bootstrap") == ParameterSource.COMMANDLINE:
                raise click.UsageError("Give --bootstrap-server or --zookeeper, not both.")
            given["bootstrap"] = asyncio.run(brokers_of(zookeeper))
        return command(**given)

    return found


async def brokers_of(connect: str, timeout_ms: int = CONNECTION_TIMEOUT_MS) -> str:
    """Return the addresses of the brokers that are registered in a ZooKeeper (host:port[,host:port][/chroot]).

    Raise CommandError if it does not answer, or if no broker is registered.
    """
    from gregor.replication.store.metadata_store import NoNode, StoreError
    from gregor.replication.store.zookeeper import Settings, ZooKeeperStore

    servers, _, chroot = connect.partition("/")
    base = f"/{chroot.strip('/')}" if chroot.strip("/") else ""
    store = ZooKeeperStore(Settings(servers, SESSION_TIMEOUT_MS, timeout_ms))
    try:
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
        raise CommandError(f"{error}. Give the address in the brokers' zookeeper.connect.") from None
    addresses = [address for node in found if node is not None for address in _plain_addresses(node[0])]
    if not addresses:
        raise CommandError(f"no broker with a PLAINTEXT listener is registered in ZooKeeper at {connect}. Start one.")
    return ",".join(addresses)


def _plain_addresses(registration: bytes) -> list[str]:
    try:
        endpoints = nodes.decode_broker(0, registration).endpoints
    except nodes.NodeFormatError:
        return []
    plain = [one for one in endpoints if one.security_protocol == "PLAINTEXT"]
    return [one.text.partition("://")[2] for one in plain[:1]]
