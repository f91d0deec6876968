"""The checks of `gregor doctor` of ZooKeeper: each server, the ensemble, and the nodes that brokers have written."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from gregor.broker.cli.doctor.checks import AHEAD_MS, Finding, Level, ObservedCluster
from gregor.broker.cluster.store_factory import STOCK
from gregor.broker.launch.local_zookeeper import DEFAULT_PORT, four_letter_word
from gregor.broker.net.advertised_addresses import is_loopback
from gregor.config.listeners import address_text

SESSION_MS = 6000
CONNECT_MS = 5000
BEHIND_MS = 60_000
"""More than AHEAD_MS: a broker may have set its timestamp before it waited for its old registration to expire."""

SendCommand = Callable[[str, int, bytes], bytes]


class Registered(NamedTuple):
    """The content of the nodes: live brokers, and the controller (-1: none)."""

    broker_ids: frozenset[int]
    controller_id: int
    ahead_ms: Mapping[int, int] = {}
    """How far the clock of each broker was ahead of ZooKeeper's when it registered; negative: behind."""


def servers_of(connect: str) -> list[tuple[str, int]]:
    """Return host and port of each server in `host:port,[::1]:port/chroot`; the default port is 2181."""
    found = []
    for server in filter(None, (part.strip() for part in connect.partition("/")[0].split(","))):
        host, colon, port = server.rpartition(":")
        if not colon or (":" in host and not host.startswith("[")):
            host, port = server, ""
        if port and not port.isdigit():
            raise ValueError(f"'{server}' is not an address of a ZooKeeper server; give HOST:PORT")
        found.append((host.strip("[]"), int(port or DEFAULT_PORT)))
    return found


def check_zookeeper(connect: str, send: SendCommand = four_letter_word) -> list[Finding]:
    """Check each server and the ensemble."""
    try:
        servers = servers_of(connect)
    except ValueError as error:
        return [
            Finding(Level.WRONG, f"zookeeper.connect={connect}: {error}", "set it to host:port[,host:port][/chroot]")
        ]
    found, modes = [], []
    for host, port in servers:
        finding, mode = _check_server(host, port, send)
        found.append(finding)
        modes.append(mode)
    if len(servers) > 1 and modes.count("leader") != 1 and "unknown" not in modes:
        text = f"the ensemble has {modes.count('leader')} leaders and {modes.count('standalone')} standalone servers"
        found.append(
            Finding(
                Level.WRONG, text, "list all servers as server.N in each zoo.cfg, and give each server its own myid"
            )
        )
    elif len(servers) % 2 == 0:
        text = f"zookeeper.connect has {len(servers)} servers, which survive no more failures than {len(servers) - 1}"
        found.append(Finding(Level.NOTE, text, "run an odd number of servers, and list all of them"))
    return found


def check_zookeeper_of_brokers(
    seen: ObservedCluster, send: SendCommand = four_letter_word
) -> tuple[str, list[Finding]]:
    """Check the ZooKeeper in the brokers' settings; return its address if a session is possible, and the findings.

    It need not serve other machines than the brokers', so that failing to reach it may be only a note.
    """
    connect = next((broker.zookeeper for broker in seen.brokers if broker.zookeeper), "")
    if not connect or (len(seen.brokers) == 1 and connect.strip() == STOCK):
        return "", []  # a single broker with the stock value may run without ZooKeeper
    here = all(is_loopback(host) for host, _ in servers_of(connect))
    if here and not is_loopback(seen.peer):
        return "", []  # a loopback address of the other machine
    found = check_zookeeper(connect, send)
    if all_reachable(found):
        return connect, found
    text = f"the brokers' ZooKeeper ({connect}) does not answer this machine: {found[0].text}"
    remedy = "start it; without it no leader is elected and no topic is created"
    if not here:
        remedy += "; if it serves only the machines of the brokers, run this command on one of them"
    return "", [Finding(Level.WRONG if here else Level.NOTE, text, remedy)]


def _check_server(host: str, port: int, send: SendCommand) -> tuple[Finding, str]:
    name = f"ZooKeeper {address_text(host, port)}"
    try:
        answer = send(host, port, b"srvr").decode(errors="replace")
    except socket.gaierror:
        remedy = "correct the name, or add it to DNS or /etc/hosts of this host"
        return Finding(Level.WRONG, f"{name}: {host} is not a known host", remedy), "down"
    except OSError as error:
        remedy = "check that it is up, and firewalls; `gregor zookeeper` runs one on this machine"
        return Finding(Level.WRONG, f"{name} does not answer: {error.strerror or error}", remedy), "down"
    fields = dict(line.partition(": ")[::2] for line in answer.splitlines() if ": " in line)
    mode = fields.get("Mode", "")
    if mode:
        version = fields.get("Zookeeper version", "").partition("-")[0]
        return Finding(Level.OK, f"{name} is up ({mode}, version {version or 'unknown'})"), mode
    if "not currently serving" in answer:
        remedy = "start a majority of its servers, and check that they reach each other on their server.N ports"
        return Finding(Level.WRONG, f"{name} is up, but its ensemble has no majority", remedy), "down"
    if "whitelist" in answer:
        remedy = "set 4lw.commands.whitelist=srvr,ruok in its zoo.cfg to allow this check"
        return Finding(Level.NOTE, f"{name} is up, but does not report its state", remedy), "unknown"
    remedy = "give the client port of a ZooKeeper, not another port of it or that of a broker"
    return Finding(Level.WRONG, f"{name} does not answer like a ZooKeeper", remedy), "down"


def check_registered(registered: Registered, live: Collection[int], controller_id: int) -> list[Finding]:
    """Compare the nodes in ZooKeeper with the brokers' metadata, and the clocks that wrote them."""
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
        parts = [f"the brokers consider {gone} alive, which are not registered"] if gone else []
        parts += [f"{new} are registered, but not in the brokers' metadata"] if new else []
        remedy = (
            "this ends within the session timeout; if it persists, compare zookeeper.connect and chroot of all brokers"
        )
        found.append(Finding(Level.WRONG, "; ".join(parts), remedy))
    if registered.controller_id != controller_id:
        text = (
            f"the controller is {registered.controller_id} by the node /controller, and {controller_id} by the brokers"
        )
        found.append(
            Finding(Level.WRONG, text, "this ends after an election; if it persists, restart the broker in the node")
        )
    return found or [
        Finding(Level.OK, f"ZooKeeper accepts a session; brokers {sorted(registered.broker_ids)} are registered")
    ]


def read_registered(connect: str) -> Registered:
    """Read the nodes in a session that changes nothing; raise OSError with the cause of a failure."""
    from gregor.replication.store import nodes
    from gregor.replication.store.metadata_store import NoNode, StoreError
    from gregor.replication.store.zookeeper import Settings, ZooKeeperStore

    servers, slash, chroot = connect.partition("/")
    root = f"{slash}{chroot}".rstrip("/")  # not the chroot of the session, which would be created if it is missing

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
        raise OSError(f"the node {error.path} does not exist: no broker has registered there") from None
    except StoreError as error:
        raise OSError(str(error)) from None


def check_session(
    connect: str,
    live: Collection[int],
    controller_id: int,
    read: Callable[[str], Registered] = read_registered,
) -> list[Finding]:
    """Open a session, and compare the nodes with the brokers' metadata."""
    try:
        registered = read(connect)
    except OSError as error:
        remedy = "compare it with zookeeper.connect of the brokers, including the chroot"
        return [Finding(Level.WRONG, f"ZooKeeper {connect}: {error}", remedy)]
    return check_registered(registered, live, controller_id)


def all_reachable(findings: Sequence[Finding]) -> bool:
    """Return whether a session is possible: one of the servers answers."""
    return any(finding.level is not Level.WRONG for finding in findings)
