"""Where metadata is kept: in the first data folder, by the broker itself, or in the ZooKeeper of `zookeeper.connect`.

`zookeeper.connect` stands in every server.properties that Apache Kafka came with until 3.9. With gregor as with them, a
broker that has it is a member of the cluster there, and does not start where no ZooKeeper answers: one that kept to
itself would take writes that the others never see.

One exception: `localhost:2181`, as those files have it, where nothing listens and no data folder was a member's. That
is a stock file tried out, and runs as a single broker.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from gregor.broker.log import logger
from gregor.replication.store.embedded import FILE_NAME
from gregor.storage.folders.identity import META_PROPERTIES_FILE

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig
    from gregor.replication.store.zookeeper import ZooKeeperStore

ALONE = "remove zookeeper.connect to run a single broker, which stores its metadata itself"
_NO_QUORUM = (
    "these are settings of a KRaft cluster, which gregor cannot join. Its clusters need ZooKeeper: set"
    " zookeeper.connect, or remove the settings of KRaft to run a single broker, which stores its metadata itself"
)
STOCK = "localhost:2181"
NO_ANSWER = f"start one there (`gregor zookeeper` runs one on this machine), or {ALONE}"


class NoSuchStore(Exception):
    """The settings ask for a metadata store that gregor does not have; the text says which, and the remedy."""


def in_cluster(config: BrokerConfig) -> bool:
    """Whether the broker is a member of a ZooKeeper's cluster, perhaps the only one. To be asked once, before anything
    is in the data folders: with the stock value it depends on what listens there."""
    return bool(config["zookeeper.connect"]) and not _is_stock_file_alone(config)


def _is_stock_file_alone(config: BrokerConfig) -> bool:
    if config["zookeeper.connect"].strip() != STOCK or config.broker_id < 0:
        return False
    if any(_was_members(folder) for folder in config.log_dirs) or _listens(STOCK):
        return False
    logger.warning(
        "zookeeper.connect=%s is ignored, as nothing listens there: this is a single broker, which stores its"
        " metadata in its first data folder; leave the key out, or start a ZooKeeper before the broker",
        STOCK,
    )
    return True


def check_members(connect: str) -> None:
    """That none of several brokers begins alone: the stock value needs its ZooKeeper. Raises NoSuchStore."""
    if connect.strip() == STOCK and not _listens(STOCK):
        raise NoSuchStore(f"zookeeper.connect={connect}: nothing listens there; start a ZooKeeper, or remove the key")


def _was_members(folder: str) -> bool:
    """Whether a broker whose metadata lay elsewhere has used this data folder."""
    return os.path.exists(f"{folder}/{META_PROPERTIES_FILE}") and not os.path.exists(f"{folder}/{FILE_NAME}")


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        pass  # whoever is there, it is not nobody
    return True


def check_store(config: BrokerConfig) -> None:
    """Raises NoSuchStore."""
    if not config["zookeeper.connect"]:
        _check_quorum(config)
        return
    if config["zookeeper.set.acl"]:
        raise NoSuchStore(
            "zookeeper.set.acl=true: only brokers that authenticate to ZooKeeper could open the nodes, and"
            " gregor cannot authenticate to it; set zookeeper.set.acl=false"
        )
    servers, _, chroot = config["zookeeper.connect"].partition("/")
    if not servers.strip() or chroot.endswith("/"):
        raise NoSuchStore(
            f"zookeeper.connect={config['zookeeper.connect']}: must be host:port[,host:port][/chroot]; or {ALONE}"
        )


def _check_quorum(config: BrokerConfig) -> None:
    """The settings of one KRaft node that is controller and broker are those of a single broker. Any others are of a
    cluster, of which each gregor would be one for itself, and take writes that the others never see."""
    given = config.static_texts
    roles = {role.strip() for role in given.get("process.roles", "").split(",")} - {""}
    if roles and roles != {"broker", "controller"}:
        raise NoSuchStore(f"process.roles={given['process.roles']}: {_NO_QUORUM}")
    for key in ("controller.quorum.voters", "controller.quorum.bootstrap.servers"):
        if len({one.strip() for one in given.get(key, "").split(",")} - {""}) > 1:
            raise NoSuchStore(f"{key}={given[key]}: {_NO_QUORUM}")


def zookeeper_store(config: BrokerConfig) -> ZooKeeperStore:
    """The store of `zookeeper.connect`, not started yet."""
    from gregor.replication.store.zookeeper import Settings, ZooKeeperStore  # kazoo is only for those who need it

    return ZooKeeperStore(
        Settings(
            "".join(config["zookeeper.connect"].split()),
            config["zookeeper.session.timeout.ms"],
            config["zookeeper.connection.timeout.ms"],
            config["zookeeper.max.in.flight.requests"],
        )
    )
