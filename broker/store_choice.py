"""Where metadata is kept: in the first data folder, by the broker itself, or in the ZooKeeper of `zookeeper.connect`.

`zookeeper.connect` stands in every server.properties that Apache Kafka came with until 3.9. With gregor as with them, a
broker that has it is a member of the cluster there, and does not start where no ZooKeeper answers: one that kept to
itself would take writes that the others never see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from config.broker import BrokerConfig
    from replication.zk_client import ZooKeeperStore

ALONE = "leave zookeeper.connect out to run a single broker, which keeps its metadata itself"
_NO_QUORUM = (
    "these are settings of a KRaft cluster, which gregor cannot join. Its clusters are kept in ZooKeeper: give"
    " zookeeper.connect, or leave the settings of KRaft out to run a single broker, which keeps its metadata itself"
)
NO_ANSWER = f"start one there (`gregor zookeeper` runs one on this machine), or {ALONE}"


class NoSuchStore(Exception):
    """The settings ask for a metadata store that gregor does not have; the text says which, and the remedy."""


def in_cluster(config: BrokerConfig) -> bool:
    """Whether the broker is a member of a ZooKeeper's cluster, perhaps the only one."""
    return bool(config["zookeeper.connect"])


def check_store(config: BrokerConfig) -> None:
    """Raises NoSuchStore."""
    if not in_cluster(config):
        _check_quorum(config)
        return
    if config["zookeeper.set.acl"]:
        raise NoSuchStore(
            "zookeeper.set.acl=true: nodes would be open to nobody but a broker that has logged in at ZooKeeper, and"
            " gregor has no login there; set it to false"
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
    from replication.zk_client import Settings, ZooKeeperStore  # kazoo is only for those who need it

    return ZooKeeperStore(
        Settings(
            "".join(config["zookeeper.connect"].split()),
            config["zookeeper.session.timeout.ms"],
            config["zookeeper.connection.timeout.ms"],
            config["zookeeper.max.in.flight.requests"],
        )
    )
