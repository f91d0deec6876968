"""The checks of `gregor doctor` of ZooKeeper: each server, the ensemble, and the nodes that brokers have written."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from gregor.broker.cli.doctor.checks import AHEAD_MS, Finding, Level, ObservedCluster
from gregor.broker.cli.doctor.tls_probe import speaks_tls
from gregor.broker.cluster.store_factory import STOCK
from gregor.broker.launch.local_zookeeper import four_letter_word
from gregor.broker.net.advertised_addresses import is_loopback
from gregor.broker.session_watcher.tls import wrap_of
from gregor.config.definitions import ConfigError
from gregor.config.ensemble import parse_connect
from gregor.config.listeners import address_text
from gregor.config.security.zookeeper import ZooKeeperSecurity
from gregor.protocol.channel_security import PLAINTEXT
from gregor.protocol.client_security import handshake_failure

_GIVE_TLS = (
    "give --zk-tls-config-file FILE with zookeeper.ssl.client.enable=true and zookeeper.ssl.truststore.location, or"
    " --config with the server.properties of a broker that has them"
)
SESSION_MS = 6000
CONNECT_MS = 5000
BEHIND_MS = 60_000
"""More than AHEAD_MS: a broker may have set its timestamp before it waited for its old registration to expire."""

READ = 1
"""The permission that everyone has on most nodes of a secured ZooKeeper (kazoo.security.Permissions)."""
SECRET_PATHS = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Readable by brokers only (Kafka's ZkData)."""
GUARDED_PATHS = ("/kafka-acl", "/kafka-acl-extended", "/config/topics", "/brokers/topics", "/admin")
"""Some of those that only brokers may change."""

SendCommand = Callable[[str, int, bytes], bytes]
_NO_SECURITY = ZooKeeperSecurity()


class Reach(NamedTuple):
    """How servers are reached: `send` sends a four-letter word, `speaks_tls` tries a handshake."""

    send: SendCommand = four_letter_word
    speaks_tls: Callable[[str, int], bool] = speaks_tls
    is_tls: bool = False

    @classmethod
    def of(cls, security: ZooKeeperSecurity) -> Reach:
        """Return the way with this security. Raises ConfigError for keys or certificates that cannot be read."""
        wrap = wrap_of(security)
        return cls(partial(four_letter_word, wrap=wrap), is_tls=True) if wrap is not None else cls()


IN_CLEAR = Reach()
_TLS = "tls"
"""The mode of a server that has TLS, where the settings have none."""


class Registered(NamedTuple):
    """The content of the nodes: live brokers, and the controller (-1: none)."""

    broker_ids: frozenset[int]
    controller_id: int
    ahead_ms: Mapping[int, int] = {}
    """How far the clock of each broker was ahead of ZooKeeper's when it registered; negative: behind."""
    protocols: frozenset[str] = frozenset()
    """The security protocols of the brokers' listeners."""
    open_permissions: Mapping[str, int] = {}
    """The permissions of everyone on nodes that exist, of SECRET_PATHS and GUARDED_PATHS: bit masks."""


def check_zookeeper(connect: str, reach: Reach = IN_CLEAR) -> list[Finding]:
    """Check each server and the ensemble."""
    try:
        servers = parse_connect(connect).servers
    except ConfigError as error:
        return [Finding(Level.WRONG, str(error), "correct zookeeper.connect; a broker does not start with it")]
    return _check_servers(servers, reach)[0]


def _check_servers(servers: Sequence[tuple[str, int]], reach: Reach) -> tuple[list[Finding], list[str]]:
    found, modes = [], []
    for host, port in servers:
        finding, mode = _check_server(host, port, reach)
        found.append(finding)
        modes.append(mode)
    if _TLS in modes:
        return found, modes
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
    return found, modes


def check_zookeeper_of_brokers(seen: ObservedCluster, reach: Reach = IN_CLEAR) -> tuple[str, list[Finding]]:
    """Check the ZooKeeper in the brokers' settings; return its address if a session is possible, and the findings.

    It need not serve other machines than the brokers', so that failing to reach it may be only a note.
    """
    connect = next((broker.zookeeper for broker in seen.brokers if broker.zookeeper), "")
    if not connect or (len(seen.brokers) == 1 and connect.strip() == STOCK):
        return "", []  # a single broker with the stock value may run without ZooKeeper
    try:
        servers = parse_connect(connect).servers
    except ConfigError as error:
        return "", [Finding(Level.WRONG, f"the brokers have {error}", "correct it in their settings")]
    here = all(is_loopback(host) for host, _ in servers)
    if here and not is_loopback(seen.peer):
        return "", []  # a loopback address of the other machine
    found, modes = _check_servers(servers, reach)
    if _TLS in modes:
        # This machine need not have the brokers' certificates, so that nothing is known to be wrong.
        return "", [Finding(Level.NOTE, f"the brokers' ZooKeeper ({connect}) has TLS and is not checked", _GIVE_TLS)]
    if all_reachable(found):
        return connect, found
    text = f"the brokers' ZooKeeper ({connect}) does not answer this machine: {found[0].text}"
    remedy = "start it; without it no leader is elected and no topic is created"
    if not here:
        remedy += "; if it serves only the machines of the brokers, run this command on one of them"
    return "", [Finding(Level.WRONG if here else Level.NOTE, text, remedy)]


def _check_server(host: str, port: int, reach: Reach) -> tuple[Finding, str]:
    name = f"ZooKeeper {address_text(host, port)}"
    try:
        answer = reach.send(host, port, b"srvr").decode(errors="replace")
    except socket.gaierror:
        remedy = "correct the name, or add it to DNS or /etc/hosts of this host"
        return Finding(Level.WRONG, f"{name}: {host} is not a known host", remedy), "down"
    except OSError as error:
        if reach.is_tls and (text := handshake_failure(error)) is not None:
            remedy = (
                "compare zookeeper.ssl.* with its zoo.cfg: the authority, the names in its certificate, whether it"
                " requires one of its clients (ssl.clientAuth), and zookeeper.ssl.protocol, as servers of 3.9 have"
                " TLSv1.3 only"
            )
            return Finding(Level.WRONG, f"{name}: {re.split('[;:] ', text)[0]}", remedy), "down"
        if isinstance(error, ConnectionResetError | TimeoutError) and not reach.is_tls and reach.speaks_tls(host, port):
            return _has_tls(name), _TLS
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
    if not answer and not reach.is_tls and reach.speaks_tls(host, port):
        return _has_tls(name), _TLS
    remedy = "give the client port of a ZooKeeper, not another port of it or that of a broker"
    return Finding(Level.WRONG, f"{name} does not answer like a ZooKeeper", remedy), "down"


def _has_tls(name: str) -> Finding:
    return Finding(Level.WRONG, f"{name} has TLS, and these settings connect in clear text", _GIVE_TLS)


def check_access(registered: Registered, *, is_authorized: bool) -> list[Finding]:
    """Check that the nodes of secured brokers are closed to others: with them, who reaches ZooKeeper is any user."""
    protections = sorted(registered.protocols - {PLAINTEXT}) + ["authorizer.class.name"] * is_authorized
    if not protections:
        return []
    permissions = registered.open_permissions
    readable = [path for path in SECRET_PATHS if permissions.get(path, 0) & READ]
    changeable = [path for path, mask in sorted(permissions.items()) if mask & ~READ]
    if not readable and not changeable:
        text = "the nodes of the brokers in ZooKeeper are closed to others"
        return [Finding(Level.OK, text)] if permissions else []
    parts = [f"read {', '.join(readable)}"] * bool(readable) + [f"change {', '.join(changeable)}"] * bool(changeable)
    text = (
        f"the brokers are secured ({', '.join(protections)}), and ZooKeeper is open: everyone who reaches it may"
        f" {' and '.join(parts)}"
    )
    remedy = (
        "set zookeeper.set.acl=true with gregor.zookeeper.jaas.config or a certificate, and close the nodes that exist:"
        " zookeeper-security-migration.sh --zookeeper.acl=secure; or let only the brokers reach ZooKeeper"
    )
    return [Finding(Level.NOTE, text, remedy)]


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


def read_registered(connect: str, security: ZooKeeperSecurity = _NO_SECURITY) -> Registered:
    """Read the nodes in a session that changes nothing; raise OSError with the cause of a failure."""
    from gregor.replication.store import nodes
    from gregor.replication.store.metadata_store import NoNode, StoreError
    from gregor.replication.store.zookeeper import Settings, ZooKeeperStore

    ensemble = parse_connect(connect)
    root = ensemble.chroot  # not the chroot of the session, which would be created if it is missing

    async def read() -> Registered:
        store = ZooKeeperStore(Settings(ensemble.addresses, SESSION_MS, CONNECT_MS, security=security))
        await store.start()
        try:
            ids = frozenset(int(name) for name in await store.children(f"{root}{nodes.BROKER_IDS}"))
            ahead_ms, protocols, permissions = {}, set(), {}
            for broker_id in ids:
                found = await store.get_dated(f"{root}{nodes.broker_path(broker_id)}")
                if found is not None:
                    broker = nodes.decode_broker(broker_id, found[0])
                    ahead_ms[broker_id] = broker.timestamp_ms - found[1]
                    protocols |= {one.security_protocol for one in broker.endpoints}
            for path in (*SECRET_PATHS, *GUARDED_PATHS):
                with suppress(NoNode):
                    permissions[path] = await store.open_permissions(f"{root}{path}")
            node = await store.get(f"{root}{nodes.CONTROLLER}")
            controller_id = -1 if node is None else nodes.decode_controller(node[0])
            return Registered(ids, controller_id, ahead_ms, frozenset(protocols), permissions)
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
    *,
    is_authorized: bool = False,
) -> list[Finding]:
    """Open a session, and compare the nodes with the brokers' metadata."""
    try:
        registered = read(connect)
    except OSError as error:
        remedy = "compare it with zookeeper.connect of the brokers, including the chroot"
        return [Finding(Level.WRONG, f"ZooKeeper {connect}: {error}", remedy)]
    found = check_registered(registered, live, controller_id)
    return found + check_access(registered, is_authorized=is_authorized)


def all_reachable(findings: Sequence[Finding]) -> bool:
    """Return whether a session is possible: one of the servers answers."""
    return any(finding.level is not Level.WRONG for finding in findings)
