"""gregor.broker.cli.doctor.zookeeper: servers and nodes, without a ZooKeeper."""

from __future__ import annotations

import socket
import ssl

import pytest

from gregor.broker.cli.doctor.checks import Level, ObservedBroker, ObservedCluster
from gregor.broker.cli.doctor.zookeeper import (
    Reach,
    Registered,
    all_reachable,
    check_access,
    check_registered,
    check_session,
    check_zookeeper,
    check_zookeeper_of_brokers,
)
from gregor.protocol.messages import MetadataResponse
from tests.broker.cli.findings import wrong

SRVR = "Zookeeper version: 3.9.3-abc, built on x\nLatency min/avg/max: 0/0/0\nMode: {}\nNode count: 5\n"


def answers(*modes: str, tls: bool = False) -> Reach:
    left = iter(modes)

    def ask(host: str, port: int, word: bytes) -> bytes:
        mode = next(left)
        if mode == "refused":
            raise ConnectionRefusedError(111, "Connection refused")
        if mode in ("leader", "follower", "standalone"):
            return SRVR.format(mode).encode()
        return mode.encode()

    return Reach(ask, lambda host, port: tls)


def test_addresses() -> None:
    (found,) = wrong(check_zookeeper("a:x"))
    assert (
        found.text.startswith("zookeeper.connect=a:x: must be host:port") and "'a:x' is not the address" in found.text
    )


@pytest.mark.parametrize(
    ("modes", "levels"),
    [
        (["standalone"], [Level.OK]),
        (["leader", "follower", "follower"], [Level.OK] * 3),
        (["leader", "refused", "follower"], [Level.OK, Level.WRONG, Level.OK]),
        (["This ZooKeeper instance is not currently serving requests\n"], [Level.WRONG]),
        (["srvr is not executed because it is not in the whitelist.\n"], [Level.NOTE]),
        (["HTTP/1.1 400"], [Level.WRONG]),
        ([""], [Level.WRONG]),
        (["standalone", "standalone", "standalone"], [Level.OK, Level.OK, Level.OK, Level.WRONG]),
        (["leader", "follower"], [Level.OK, Level.OK, Level.NOTE]),
    ],
)
def test_servers(modes: list[str], levels: list[Level]) -> None:
    findings = check_zookeeper(",".join(f"zoo{number}:2181" for number in range(len(modes))), answers(*modes))
    assert [one.level for one in findings] == levels
    wrong(findings)


def test_session_is_opened_only_if_a_server_answers() -> None:
    assert not all_reachable(check_zookeeper("a:1", answers("refused")))
    assert all_reachable(check_zookeeper("a:1,b:1,c:1", answers("refused", "leader", "follower")))


def seen(peer: str, *zookeepers: str) -> ObservedCluster:
    brokers = [ObservedBroker(index, "kafka", 9092, zookeeper=connect) for index, connect in enumerate(zookeepers)]
    return ObservedCluster("kafka:9092", peer, MetadataResponse(brokers=[], topics=[]), brokers)


@pytest.mark.parametrize(
    ("told", "mode", "connect", "levels"),
    [
        (seen("192.0.2.1", "zoo:2181/k", "zoo:2181/k"), "standalone", "zoo:2181/k", [Level.OK]),
        (seen("192.0.2.1", "zoo:2181", "zoo:2181"), "refused", "", [Level.NOTE]),
        (seen("127.0.0.1", "127.0.0.1:2181", "127.0.0.1:2181"), "refused", "", [Level.WRONG]),
        (seen("192.0.2.1", "127.0.0.1:2181", "127.0.0.1:2181"), "standalone", "", []),
        (seen("127.0.0.1", "127.0.0.1:2181", "127.0.0.1:2181"), "standalone", "127.0.0.1:2181", [Level.OK]),
        (seen("127.0.0.1", "localhost:2181"), "standalone", "", []),
        (seen("127.0.0.1", "zoo:x", "zoo:2181"), "standalone", "", [Level.WRONG]),
        (seen("127.0.0.1", "", ""), "standalone", "", []),
    ],
)
def test_the_zookeeper_that_brokers_have(told: ObservedCluster, mode: str, connect: str, levels: list[Level]) -> None:
    found_connect, found = check_zookeeper_of_brokers(told, answers(mode))
    assert (found_connect, [one.level for one in found]) == (connect, levels)


def test_nodes_are_compared_with_the_metadata() -> None:
    assert wrong(check_registered(Registered(frozenset({1, 2}), 1, {1: 9_999, 2: -59_999}), [2, 1], 1)) == []
    found = wrong(check_registered(Registered(frozenset({1, 4}), 4), [1, 2], 1))
    assert [one.text for one in found] == [
        "the brokers consider [2] alive, which are not registered; "
        "[4] are registered, but not in the brokers' metadata",
        "the controller is 4 by the node /controller, and 1 by the brokers",
    ]


def test_broker_with_a_wrong_clock_is_reported() -> None:
    registered = Registered(frozenset({1, 2, 3}), 1, {1: 0, 2: 90_000, 3: -61_000})
    found = wrong(check_registered(registered, [1, 2, 3], 1))
    assert [one.text for one in found] == [
        "the clock of broker 2 was 90 s ahead of ZooKeeper's when it registered",
        "the clock of broker 3 was 61 s behind ZooKeeper's when it registered",
    ]


def test_a_name_that_is_none() -> None:
    def ask(host: str, port: int, word: bytes) -> bytes:
        raise socket.gaierror(-2, "Name or service not known")

    (finding,) = wrong(check_zookeeper("nowhere:2181", Reach(ask)))
    assert finding.text == "ZooKeeper nowhere:2181: nowhere is not a known host"


def test_failed_session_is_reported_with_its_cause() -> None:
    def read(connect: str) -> Registered:
        raise OSError("there is no node /kafka/brokers/ids: no broker has joined a cluster there")

    (finding,) = wrong(check_session("a:1/kafka", [1], 1, read))
    assert "no node /kafka/brokers/ids" in finding.text


@pytest.mark.parametrize("mode", ["", "reset"])
def test_server_with_tls_is_named_as_such_to_settings_without(mode: str) -> None:
    def send(host: str, port: int, word: bytes) -> bytes:
        if mode == "reset":
            raise ConnectionResetError(104, "Connection reset by peer")
        return b""

    reach = Reach(send, lambda host, port: True)
    found = wrong(check_zookeeper("a:1,b:1", reach))
    assert [one.text for one in found] == [
        f"ZooKeeper {name}:1 has TLS, and these settings connect in clear text" for name in "ab"
    ]
    connect, (finding,) = check_zookeeper_of_brokers(seen("192.0.2.1", "zoo:2182", "zoo:2182"), reach)
    assert (connect, finding.level) == ("", Level.NOTE)
    assert "has TLS and is not checked" in finding.text and "--zk-tls-config-file" in finding.remedy


def test_failed_handshake_is_reported_with_the_settings_to_compare() -> None:
    def send(host: str, port: int, word: bytes) -> bytes:
        error = ssl.SSLError(1, "tlsv13 alert certificate required")
        error.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
        raise error

    (finding,) = wrong(check_zookeeper("a:1", Reach(send, is_tls=True)))
    assert finding.text.startswith("ZooKeeper a:1: the TLS handshake failed (") and "ssl.clientAuth" in finding.remedy


EVERYONE, READ = 31, 1


@pytest.mark.parametrize(
    ("protocols", "authorized", "permissions", "level", "parts"),
    [
        ({"PLAINTEXT"}, False, {"/config/users": EVERYONE}, None, ()),
        (
            {"PLAINTEXT", "SASL_SSL"},
            False,
            {"/config/users": EVERYONE},
            Level.NOTE,
            ("read /config/users", "(SASL_SSL)"),
        ),
        ({"PLAINTEXT"}, True, {"/config/users": READ}, Level.NOTE, ("may read /config/users", "authorizer.class.name")),
        ({"SSL"}, True, {"/config/users": 0, "/kafka-acl": EVERYONE}, Level.NOTE, ("may change /kafka-acl",)),
        ({"SSL"}, True, {"/config/users": 0, "/kafka-acl": READ}, Level.OK, ("are closed to others",)),
        ({"SSL"}, True, {}, None, ()),
    ],
)
def test_open_nodes_of_secured_brokers_are_reported(
    protocols: set[str], authorized: bool, permissions: dict[str, int], level: Level | None, parts: tuple[str, ...]
) -> None:
    registered = Registered(frozenset({1}), 1, {}, frozenset(protocols), permissions)
    found = check_access(registered, is_authorized=authorized)
    assert [one.level for one in found] == ([] if level is None else [level])
    for part in parts:
        assert part in found[0].text
    wrong(found)


def test_session_reports_open_nodes() -> None:
    registered = Registered(frozenset({1}), 1, {}, frozenset({"SSL"}), {"/config/users": EVERYONE})
    found = check_session("a:1", [1], 1, lambda connect: registered)
    assert [one.level for one in found] == [Level.OK, Level.NOTE]
