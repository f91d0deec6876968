"""The choice of the metadata store: embedded in the first data folder, or the ZooKeeper of `zookeeper.connect`.

`zookeeper.connect` is set in every server.properties that Apache Kafka was released with until 3.9. With gregor as with
Kafka, a broker that has it is a member of that cluster, and does not start where no ZooKeeper answers: as a single
broker it would accept records that the other brokers never see.

One exception: `localhost:2181`, the value of those files, where nothing listens and no data folder belonged to a member
of a cluster. That is a stock file tried out, and the broker runs as a single one.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from gregor.broker.log import logger
from gregor.config.definitions import ConfigError
from gregor.config.ensemble import parse_connect
from gregor.config.security.zookeeper import zookeeper_security
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
    """The settings name a metadata store that gregor does not have; the text names it, and the remedy."""


def in_cluster(config: BrokerConfig) -> bool:
    """Whether the broker is a member of a ZooKeeper's cluster, perhaps the only one. To be called once, before anything
    is in the data folders: with the stock value the result depends on whether a ZooKeeper listens there."""
    return bool(config["zookeeper.connect"]) and not _is_stock_file_alone(config)


def _is_stock_file_alone(config: BrokerConfig) -> bool:
    if config["zookeeper.connect"].strip() != STOCK or config.broker_id < 0:
        return False
    if any(_was_members(folder) for folder in config.log_dirs) or is_listening(STOCK):
        return False
    logger.warning(
        "zookeeper.connect=%s is ignored, as nothing listens there: this is a single broker, which stores its"
        " metadata in its first data folder; leave the key out, or start a ZooKeeper before the broker",
        STOCK,
    )
    return True


def check_members(connect: str) -> None:
    """Check a value of zookeeper.connect, or "", and that none of several brokers would run as a single one: the stock
    value needs its ZooKeeper. Raises NoSuchStore."""
    if connect:
        _check_connect(connect)
    if connect.strip() == STOCK and not is_listening(STOCK):
        raise NoSuchStore(f"zookeeper.connect={connect}: nothing listens there; start a ZooKeeper, or remove the key")


def _was_members(folder: str) -> bool:
    """Whether a broker that had its metadata elsewhere has used this data folder."""
    return os.path.exists(f"{folder}/{META_PROPERTIES_FILE}") and not os.path.exists(f"{folder}/{FILE_NAME}")


def is_listening(address: str) -> bool:
    """Whether anything may listen at host:port: only a refused connection shows that nothing does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        pass  # a host or a firewall is there, even if it does not answer
    return True


def check_store(config: BrokerConfig) -> None:
    """Check that gregor has the metadata store that the settings name. Raises NoSuchStore."""
    if not config["zookeeper.connect"]:
        _check_quorum(config)
        return
    try:
        zookeeper_security(config)
    except ConfigError as error:
        raise NoSuchStore(str(error)) from None
    _check_connect(config["zookeeper.connect"])


def _check_connect(connect: str) -> None:
    try:
        parse_connect(connect)
    except ConfigError as error:
        raise NoSuchStore(f"{error}; or {ALONE}") from None


def _check_quorum(config: BrokerConfig) -> None:
    """Accept the settings of one KRaft node that is controller and broker: they are those of a single broker. Refuse
    any others: they are a cluster's, and each gregor would run alone and accept records that the others never see."""
    given = config.static_texts
    roles = {role.strip() for role in given.get("process.roles", "").split(",")} - {""}
    if roles and roles != {"broker", "controller"}:
        raise NoSuchStore(f"process.roles={given['process.roles']}: {_NO_QUORUM}")
    for key in ("controller.quorum.voters", "controller.quorum.bootstrap.servers"):
        if len({one.strip() for one in given.get(key, "").split(",")} - {""}) > 1:
            raise NoSuchStore(f"{key}={given[key]}: {_NO_QUORUM}")


def zookeeper_store(config: BrokerConfig) -> ZooKeeperStore:
    """Return the store of `zookeeper.connect`, not started yet."""
    from gregor.replication.store.zookeeper import Settings, ZooKeeperStore  # kazoo is only for those who need it

    return ZooKeeperStore(
        Settings(
            config["zookeeper.connect"],
            config["zookeeper.session.timeout.ms"],
            config["zookeeper.connection.timeout.ms"],
            config["zookeeper.max.in.flight.requests"],
            zookeeper_security(config),
        )
    )
