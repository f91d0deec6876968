"""broker.cli.doctor_host: settings, folders, limits and ZooKeeper, without any of them running."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.cli.doctor_checks import Finding, Level
from broker.cli.doctor_host import (
    Registered,
    all_reachable,
    check_config,
    check_limits,
    check_registered,
    check_session,
    check_zookeeper,
    servers_of,
)

SRVR = "Zookeeper version: 3.9.3-abc, built on x\nLatency min/avg/max: 0/0/0\nMode: {}\nNode count: 5\n"


def texts(findings: list[Finding]) -> list[tuple[Level, str]]:
    return [(one.level, one.text) for one in findings]


def wrong(findings: list[Finding]) -> list[Finding]:
    assert all(one.remedy for one in findings if one.level is not Level.OK)
    return [one for one in findings if one.level is Level.WRONG]


def config(tmp_path: Path, *lines: str) -> str:
    file = tmp_path / "server.properties"
    file.write_text("\n".join([f"log.dirs={tmp_path / 'data'}", *lines]))
    return str(file)


def meta(tmp_path: Path, text: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text(text)


def test_settings_that_cannot_be_taken(tmp_path: Path) -> None:
    found, findings = check_config(config(tmp_path, "num.partitions=0"), None)
    assert found is None
    assert "num.partitions=0: " in wrong(findings)[0].text
    found, findings = check_config(str(tmp_path / "none"), None)
    assert "cannot be read: No such file" in wrong(findings)[0].text


def test_warnings_of_the_settings_are_notes(tmp_path: Path) -> None:
    found, findings = check_config(config(tmp_path, "num.partition=3"), None)
    assert found is not None
    assert any(one.level is Level.NOTE and "did you mean num.partitions?" in one.text for one in findings)


def test_a_folder_that_is_not_there_or_new_is_fine(tmp_path: Path) -> None:
    assert wrong(check_config(config(tmp_path), None)[1]) == []
    (tmp_path / "data").mkdir()
    assert wrong(check_config(config(tmp_path), None)[1]) == []


def test_a_folder_of_this_broker(tmp_path: Path) -> None:
    meta(tmp_path, "version=0\nbroker.id=3\ncluster.id=abc\n")
    findings = check_config(config(tmp_path, "broker.id=3"), "abc")[1]
    assert wrong(findings) == []
    assert "belongs to broker 3 of cluster abc" in findings[-1].text


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("version=0\nbroker.id=4\ncluster.id=abc\n", ["of broker 4, the settings are of broker 3"]),
        ("version=0\nbroker.id=3\ncluster.id=xyz\n", ["of cluster xyz, the brokers asked are of abc"]),
        ("version=7\n", ["version 0 or 1 expected"]),
    ],
)
def test_a_folder_of_somebody_else(tmp_path: Path, text: str, parts: list[str]) -> None:
    meta(tmp_path, text)
    findings = wrong(check_config(config(tmp_path, "broker.id=3"), "abc")[1])
    assert [part in one.text for part, one in zip(parts, findings, strict=True)] == [True]


@pytest.mark.parametrize(("limit", "level"), [(65536, Level.OK), (8192, Level.NOTE), (1024, Level.WRONG)])
def test_limits(limit: int, level: Level) -> None:
    (finding,) = check_limits(limit)
    assert finding.level is level
    assert bool(finding.remedy) is (level is not Level.OK)


# -- ZooKeeper -----------------------------------------------------------------------------------------------------


def answers(*modes: str) -> Callable[[str, int, bytes], bytes]:
    left = iter(modes)

    def ask(host: str, port: int, word: bytes) -> bytes:
        mode = next(left)
        if mode == "refused":
            raise ConnectionRefusedError(111, "Connection refused")
        if mode in ("leader", "follower", "standalone"):
            return SRVR.format(mode).encode()
        return mode.encode()

    return ask


def test_addresses() -> None:
    assert servers_of("a:1, b ,[::1]:3,::1/kafka") == [("a", 1), ("b", 2181), ("::1", 3), ("::1", 2181)]
    assert (
        wrong(check_zookeeper("a:x"))[0].text
        == "zookeeper.connect=a:x: 'a:x' is no address of a ZooKeeper server; give HOST:PORT"
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


def test_a_session_is_tried_only_where_somebody_answers() -> None:
    assert not all_reachable(check_zookeeper("a:1", answers("refused")))
    assert all_reachable(check_zookeeper("a:1,b:1,c:1", answers("refused", "leader", "follower")))


def test_what_stands_in_the_nodes() -> None:
    assert wrong(check_registered(Registered(frozenset({1, 2}), 1, {1: 5_000, 2: 15_000}), [2, 1], 1, 5_000)) == []
    found = wrong(check_registered(Registered(frozenset({1, 4}), 4), [1, 2], 1, 0))
    assert [one.text for one in found] == [
        "the brokers take [2] for alive, which have no registration; [4] are registered, which the brokers do not know",
        "/controller names 4, the brokers say 1",
    ]


def test_a_broker_whose_clock_is_ahead() -> None:
    registered = Registered(frozenset({1, 2}), 1, {1: 0, 2: 95_000})
    (finding,) = wrong(check_registered(registered, [1, 2], 1, 5_000))
    assert finding.text == "broker 2 says that it registered 90 s from now"


def test_a_session_that_fails_says_why() -> None:
    def read(connect: str) -> Registered:
        raise OSError("there is no node /kafka/brokers/ids: no broker has joined a cluster there")

    (finding,) = wrong(check_session("a:1/kafka", [1], 1, read))
    assert "no node /kafka/brokers/ids" in finding.text
