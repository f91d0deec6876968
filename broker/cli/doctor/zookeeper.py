"""What `gregor doctor` sees of ZooKeeper: each server by itself, and what brokers have written there."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from gregor.broker.cli.doctor.checks import AHEAD_MS, Finding, Level, Seen
from gregor.broker.cluster.store_factory import STOCK
from gregor.broker.launch.local_zookeeper import DEFAULT_PORT, four_letter_word
from gregor.broker.net.advertised_addresses import is_loopback
from gregor.config.listeners import address_text

SESSION_MS = 6000
CONNECT_MS = 5000
BEHIND_MS = 60_000
"""More than ahead: what a broker says of its time may have waited for its old registration to end."""

Ask = Callable[[str, int, bytes], bytes]


class Registered(NamedTuple):
    """What the nodes say: live brokers, and the controller (-1: none)."""

    broker_ids: frozenset[int]
    controller_id: int
    ahead_ms: Mapping[int, int] = {}
    """How far the clock of each broker was ahead of ZooKeeper's when it registered; below 0: behind."""


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


def check_zookeeper(connect: str, asking: Ask = four_letter_word) -> list[Finding]:
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


def check_told(seen: Seen, asking: Ask = four_letter_word) -> tuple[str, list[Finding]]:
    """Where nobody named a ZooKeeper, that of the brokers: its zookeeper.connect if a session has a chance, and what is
    to be seen of it. It need not be meant for other machines: that it cannot be reached from here may be only a note.
    """
    connect = next((broker.zookeeper for broker in seen.brokers if broker.zookeeper), "")
    if not connect or (len(seen.brokers) == 1 and connect.strip() == STOCK):
        return "", []  # with the stock value a broker may be on its own
    here = all(is_loopback(host) for host, _ in servers_of(connect))
    if here and not is_loopback(seen.peer):
        return "", []  # it is the other machine's
    found = check_zookeeper(connect, asking)
    if all_reachable(found):
        return connect, found
    text = f"the brokers' ZooKeeper ({connect}) does not serve this machine: {found[0].text}"
    remedy = "start it: without it no leader is elected and no topic created"
    if not here:
        remedy += "; if only the brokers are to reach it, look from one of their machines"
    return "", [Finding(Level.WRONG if here else Level.NOTE, text, remedy)]


def _check_server(host: str, port: int, asking: Ask) -> tuple[Finding, str]:
    name = f"ZooKeeper {address_text(host, port)}"
    try:
        answer = asking(host, port, b"srvr").decode(errors="replace")
    except socket.gaierror:
        remedy = "is it spelt right? Else have it resolved here (DNS, /etc/hosts)"
        return Finding(Level.WRONG, f"{name}: {host} is not the name of a host", remedy), "down"
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


def check_registered(registered: Registered, live: Collection[int], controller_id: int) -> list[Finding]:
    """Whether what stands in ZooKeeper is what the brokers say, and was written by clocks that agree."""
    found = []
    for broker_id, ahead_ms in sorted(registered.ahead_ms.items()):
        if ahead_ms > AHEAD_MS or ahead_ms < -BEHIND_MS:
            way = "ahead of" if ahead_ms > 0 else "behind"
            text = (
                f"the clock of broker {broker_id} was {abs(ahead_ms) / 1000:.0f} s {way} ZooKeeper's when it registered"
            )
            remedy = "compare the clocks of both machines with `date -u`; run an NTP client on both"
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
    from gregor.replication.store import nodes
    from gregor.replication.store.metadata_store import NoNode, StoreError
    from gregor.replication.store.zookeeper import Settings, ZooKeeperStore

    servers, slash, chroot = connect.partition("/")
    root = f"{slash}{chroot}".rstrip("/")  # not the session's: that would be created where it is missing

    async def read() -> Registered:
        store = ZooKeeperStore(Settings(servers, SESSION_MS, CONNECT_MS))
        await store.start()
        try:
            ids = frozenset(int(name) for name in await store.children(f"{root}{nodes.BROKER_IDS}"))
            ahead_ms = {}
            for broker_id in ids:
                found = await store.get_dated(f"{root}{nodes.broker_path(broker_id)}")
                if found is not None:
                    ahead_ms[broker_id] = nodes.decode_broker(broker_id, found[0]).timestamp_ms - found[1]
            node = await store.get(f"{root}{nodes.CONTROLLER}")
            return Registered(ids, -1 if node is None else nodes.decode_controller(node[0]), ahead_ms)
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
    return check_registered(registered, live, controller_id)


def all_reachable(findings: Sequence[Finding]) -> bool:
    """Whether a session has a chance."""
    return any(finding.level is not Level.WRONG for finding in findings)
