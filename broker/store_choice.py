"""Where metadata is kept: so far always in the first data folder, by the broker itself.

`zookeeper.connect` stands in every server.properties that Apache Kafka came with until 3.9. One that names this machine
only belongs to a single broker, which gregor stands in for; one that names others belongs to a cluster, and a broker
that kept to itself there would take writes that the others never see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.log import logger

if TYPE_CHECKING:
    from config.broker import BrokerConfig

_REMEDY = "leave the key out to run a single broker, which keeps its metadata itself"


class NoSuchStore(Exception):
    """The settings ask for a metadata store that this version does not have; the text says which, and the remedy."""


def check_store(config: BrokerConfig) -> None:
    """Says in the log where metadata is kept, if the settings name another place. Raises NoSuchStore."""
    text: str = config["zookeeper.connect"]
    if not text:
        return
    elsewhere = [host for host in _hosts(text) if not _is_this_machine(host)]
    if elsewhere:
        raise NoSuchStore(
            f"zookeeper.connect={text}: this version cannot join a cluster by ZooKeeper (on {', '.join(elsewhere)});"
            f" {_REMEDY}"
        )
    if config.broker_id < 0:
        raise NoSuchStore(f"zookeeper.connect={text}: no number is given by ZooKeeper; set broker.id, or {_REMEDY}")
    logger.warning(
        "zookeeper.connect=%s is left aside: this is a single broker, its metadata is kept in its first data folder and"
        " no ZooKeeper is asked; leave the key out",
        text,
    )


def _hosts(text: str) -> list[str]:
    """Of `host:port,[::1]:port/chroot`."""
    servers = text.partition("/")[0].split(",")
    return [host.strip("[]") for server in servers if (host := _without_port(server.strip()))]


def _without_port(server: str) -> str:
    return server.partition("]")[0] if server.startswith("[") else server.rpartition(":")[0] or server


def _is_this_machine(host: str) -> bool:
    import ipaddress  # seldom needed

    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
