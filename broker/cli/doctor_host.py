"""What `gregor doctor` sees on the broker's own machine (settings, folders, limits), and of ZooKeeper."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from broker.cli.doctor_checks import AHEAD_MS, Finding, Level
from broker.local_zookeeper import DEFAULT_PORT, ask
from config.broker import BrokerConfig
from config.definitions import ConfigError
from storage.checkpoints import MalformedFile
from storage.identity import META_PROPERTIES_FILE, MetaProperties, parse_meta_properties

ENOUGH_DESCRIPTORS = 65_536
FEW_DESCRIPTORS = 4096
SESSION_MS = 6000
CONNECT_MS = 5000

Ask = Callable[[str, int, bytes], bytes]


class Registered(NamedTuple):
    """What the nodes say: live brokers, and the controller (-1: none)."""

    broker_ids: frozenset[int]
    controller_id: int
    registered_ms: Mapping[int, int] = {}
    """When each broker registered, by its own clock."""


# -- settings and folders ------------------------------------------------------------------------------------------


def check_config(path: str, cluster_id: str | None) -> tuple[BrokerConfig | None, list[Finding]]:
    """The settings of a broker of this machine, and what its folders say."""
    try:
        config = BrokerConfig.load(path)
    except OSError as error:
        return None, [Finding(Level.WRONG, f"{path} cannot be read: {error.strerror}", "name the broker's own file")]
    except ConfigError as error:
        return None, [Finding(Level.WRONG, f"{path}: {error}", "a broker does not start with it; correct this line")]
    found = [Finding(Level.NOTE, f"{path}: {warning}", "correct or remove the line") for warning in config.warnings]
    found.append(Finding(Level.OK, f"{path}: the settings can be taken"))
    for folder in config.log_dirs:
        found += check_folder(folder, config, cluster_id)
    return config, found


def check_folder(folder: str, config: BrokerConfig, cluster_id: str | None) -> list[Finding]:
    """One data folder: whether it can be used, and whose it is."""
    if not os.path.isdir(folder):
        parent = os.path.dirname(os.path.abspath(folder))
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        if os.access(parent, os.W_OK):
            return [Finding(Level.NOTE, f"{folder} is not there yet", "the broker makes it when it starts")]
        text = f"{folder} is not there, and nobody but the owner of {parent} can make it"
        return [Finding(Level.WRONG, text, "make it, and give it to the user that runs the broker")]
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        text = f"{folder} cannot be written by this user"
        return [Finding(Level.WRONG, text, f"run as the broker's user; if this is it: chown -R its files in {folder}")]
    found = []
    usage = shutil.disk_usage(folder)
    if usage.free < usage.total * 0.05:
        text = f"{folder}: {usage.free / usage.total:.0%} of the volume is free"
        found.append(Finding(Level.WRONG, text, "add room, or lower retention.ms or retention.bytes of large topics"))
    try:
        with open(f"{folder}/{META_PROPERTIES_FILE}", "rb") as file:
            meta = parse_meta_properties(file.read(), f"{folder}/{META_PROPERTIES_FILE}")
    except FileNotFoundError:
        return [*found, Finding(Level.OK, f"{folder} is a folder that no broker has used yet")]
    except (OSError, MalformedFile) as error:
        remedy = "restore it from another data folder of this broker, or write broker.id and cluster.id by hand"
        return [*found, Finding(Level.WRONG, str(error), remedy)]
    return [*found, *_check_owner(folder, meta, config, cluster_id)]


def _check_owner(folder: str, meta: MetaProperties, config: BrokerConfig, cluster_id: str | None) -> list[Finding]:
    found = []
    file = f"{folder}/{META_PROPERTIES_FILE}"
    if meta.broker_id is not None and config.broker_id >= 0 and meta.broker_id != config.broker_id:
        text = f"{file} is of broker {meta.broker_id}, the settings are of broker {config.broker_id}"
        found.append(Finding(Level.WRONG, text, "correct broker.id or log.dirs; the data belongs to the number in it"))
    if cluster_id and meta.cluster_id and meta.cluster_id != cluster_id:
        text = f"{file} is of cluster {meta.cluster_id}, the brokers asked are of {cluster_id}"
        found.append(Finding(Level.WRONG, text, "correct zookeeper.connect (its chroot, too) or log.dirs"))
    return found or [Finding(Level.OK, f"{folder} belongs to broker {meta.broker_id} of cluster {meta.cluster_id}")]


def check_limits(hard_limit: int | None = None) -> list[Finding]:
    """How many files and connections a broker started from here could have. `hard_limit`: of `ulimit -n`."""
    if hard_limit is None:
        if sys.platform == "win32":
            return []
        import resource

        hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard_limit == resource.RLIM_INFINITY:
            hard_limit = ENOUGH_DESCRIPTORS
    text = f"a broker started by this user may have {hard_limit} files and connections (ulimit -Hn)"
    if hard_limit >= ENOUGH_DESCRIPTORS:
        return [Finding(Level.OK, text)]
    remedy = f"LimitNOFILE={ENOUGH_DESCRIPTORS} in its systemd unit, or nofile in /etc/security/limits.conf"
    return [Finding(Level.WRONG if hard_limit < FEW_DESCRIPTORS else Level.NOTE, text, remedy)]


# -- ZooKeeper -----------------------------------------------------------------------------------------------------


def servers_of(connect: str) -> list[tuple[str, int]]:
    """Of `host:port,[::1]:port/chroot`; the port is 2181 where none is given."""
    found = []
    for server in filter(None, (part.strip() for part in connect.partition("/")[0].split(","))):
        host, colon, port = server.rpartition(":")
        if not colon or (":" in host and not host.startswith("[")):
            host, port = server, ""
        if port and not port.isdigit():
            raise ValueError(f"'{server}' is no address of a ZooKeeper server; give HOST:PORT")
        found.append((host.strip("[]"), int(port or DEFAULT_PORT)))
    return found


def check_zookeeper(connect: str, asking: Ask = ask) -> list[Finding]:
    """Each server by itself, and the ensemble."""
    try:
        servers = servers_of(connect)
    except ValueError as error:
        return [Finding(Level.WRONG, f"zookeeper.connect={connect}: {error}", "host:port[,host:port][/chroot]")]
    found, modes = [], []
    for host, port in servers:
        finding, mode = _check_server(host, port, asking)
        found.append(finding)
        modes.append(mode)
    if len(servers) > 1 and modes.count("leader") != 1 and "unknown" not in modes:
        text = f"the ensemble has {modes.count('leader')} leaders, {modes.count('standalone')} servers on their own"
        found.append(Finding(Level.WRONG, text, "each zoo.cfg must list all servers as server.N, each with its myid"))
    elif len(servers) % 2 == 0:
        text = f"zookeeper.connect names {len(servers)} servers: as many may fail as with {len(servers) - 1}"
        found.append(Finding(Level.NOTE, text, "run an odd number of them, or name all that there are"))
    return found


def _check_server(host: str, port: int, asking: Ask) -> tuple[Finding, str]:
    name = f"ZooKeeper {host}:{port}"
    try:
        answer = asking(host, port, b"srvr").decode(errors="replace")
    except OSError as error:
        remedy = "is it up, and does no firewall stand between? `gregor zookeeper` runs one on this machine"
        return Finding(Level.WRONG, f"{name} cannot be reached: {error.strerror or error}", remedy), "down"
    told = dict(line.partition(": ")[::2] for line in answer.splitlines() if ": " in line)
    mode = told.get("Mode", "")
    if mode:
        version = told.get("Zookeeper version", "").partition("-")[0]
        return Finding(Level.OK, f"{name} serves ({mode}, version {version or 'unknown'})"), mode
    if "not currently serving" in answer:
        remedy = "most servers of the ensemble have to be up and to reach each other on their server.N ports"
        return Finding(Level.WRONG, f"{name} is up, but its ensemble has no majority", remedy), "down"
    if "whitelist" in answer:
        remedy = "4lw.commands.whitelist=srvr,ruok in its zoo.cfg lets it say how it is"
        return Finding(Level.NOTE, f"{name} is up, and does not say how it is", remedy), "unknown"
    remedy = "does zookeeper.connect name a ZooKeeper's client port, and not one of its others or a broker's?"
    return Finding(Level.WRONG, f"{name} does not answer as a ZooKeeper does", remedy), "down"


def check_registered(registered: Registered, live: Collection[int], controller_id: int, now_ms: int) -> list[Finding]:
    """Whether what stands in ZooKeeper is what the brokers say, and none of it from the future."""
    found = []
    for broker_id, registered_ms in sorted(registered.registered_ms.items()):
        if registered_ms - now_ms > AHEAD_MS:
            text = f"broker {broker_id} says that it registered {(registered_ms - now_ms) / 1000:.0f} s from now"
            remedy = "compare its clock and that of this machine with `date -u`; run an NTP client on both"
            found.append(Finding(Level.WRONG, text, remedy))
    gone = sorted(set(live) - registered.broker_ids)
    new = sorted(registered.broker_ids - set(live))
    if gone or new:
        parts = [f"the brokers take {gone} for alive, which have no registration"] if gone else []
        parts += [f"{new} are registered, which the brokers do not know"] if new else []
        remedy = (
            "it passes within the session time-out; if it stays: do all brokers have this zookeeper.connect and chroot?"
        )
        found.append(Finding(Level.WRONG, "; ".join(parts), remedy))
    if registered.controller_id != controller_id:
        text = f"/controller names {registered.controller_id}, the brokers say {controller_id}"
        found.append(
            Finding(Level.WRONG, text, "it passes after an election; if it stays, restart the broker it names")
        )
    return found or [Finding(Level.OK, f"ZooKeeper takes a session and knows brokers {sorted(registered.broker_ids)}")]


def read_registered(connect: str) -> Registered:
    """By a session of our own, which changes nothing. Raises OSError with the cause, also where a node is missing."""
    from replication import nodes
    from replication.metadata_store import NoNode, StoreError
    from replication.zk_client import Settings, ZooKeeperStore

    servers, slash, chroot = connect.partition("/")
    root = f"{slash}{chroot}".rstrip("/")  # not the session's: that would be created where it is missing

    async def read() -> Registered:
        store = ZooKeeperStore(Settings(servers, SESSION_MS, CONNECT_MS))
        await store.start()
        try:
            ids = frozenset(int(name) for name in await store.children(f"{root}{nodes.BROKER_IDS}"))
            when = {}
            for broker_id in ids:
                found = await store.get(f"{root}{nodes.broker_path(broker_id)}")
                if found is not None:
                    when[broker_id] = nodes.decode_broker(broker_id, found[0]).timestamp_ms
            node = await store.get(f"{root}{nodes.CONTROLLER}")
            return Registered(ids, -1 if node is None else nodes.decode_controller(node[0]), when)
        finally:
            with suppress(StoreError):
                await store.close()

    try:
        return asyncio.run(read())
    except NoNode as error:
        raise OSError(f"there is no node {error.path}: no broker has joined a cluster there") from None
    except StoreError as error:
        raise OSError(str(error)) from None


def check_session(
    connect: str,
    live: Collection[int],
    controller_id: int,
    read: Callable[[str], Registered] = read_registered,
) -> list[Finding]:
    """A session, and what the nodes say beside what the brokers say."""
    try:
        registered = read(connect)
    except OSError as error:
        remedy = "compare with zookeeper.connect of the brokers, the chroot at its end included"
        return [Finding(Level.WRONG, f"ZooKeeper {connect}: {error}", remedy)]
    return check_registered(registered, live, controller_id, int(time.time() * 1000))


def all_reachable(findings: Sequence[Finding]) -> bool:
    """Whether a session has a chance."""
    return any(finding.level is not Level.WRONG for finding in findings)
