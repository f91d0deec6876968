"""gregor.broker.cli.doctor.host: settings, addresses, folders and limits."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.cli.doctor import host as doctor_host
from gregor.broker.cli.doctor.checks import Level
from gregor.broker.cli.doctor.host import check_addresses, check_config, check_limits, check_number
from gregor.config.broker import BrokerConfig
from tests.broker.cli.findings import wrong


@pytest.fixture(autouse=True)
def room_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """However full this machine's is."""
    monkeypatch.setattr(doctor_host.shutil, "disk_usage", lambda _: SimpleNamespace(total=100, used=50, free=50))


def config(tmp_path: Path, *lines: str) -> str:
    file = tmp_path / "server.properties"
    file.write_text("\n".join([f"log.dirs={tmp_path / 'data'}", *lines]))
    return str(file)


def meta(tmp_path: Path, text: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text(text)


def test_illegal_settings_are_refused(tmp_path: Path) -> None:
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
        ("version=0\nbroker.id=4\ncluster.id=abc\n", ["belongs to broker 4, the settings to broker 3"]),
        ("version=0\nbroker.id=3\ncluster.id=xyz\n", ["belongs to cluster xyz, the observed brokers to abc"]),
        ("version=7\n", ["version 0 or 1 expected"]),
    ],
)
def test_folder_of_another_broker_is_reported(tmp_path: Path, text: str, parts: list[str]) -> None:
    meta(tmp_path, text)
    findings = wrong(check_config(config(tmp_path, "broker.id=3"), "abc")[1])
    assert [part in one.text for part, one in zip(parts, findings, strict=True)] == [True]


@pytest.mark.parametrize(("limit", "level"), [(65536, Level.OK), (8192, Level.NOTE), (1024, Level.WRONG)])
def test_limits(limit: int, level: Level) -> None:
    (finding,) = check_limits(limit)
    assert finding.level is level
    assert bool(finding.remedy) is (level is not Level.OK)


# -- addresses and the number ----------------------------------------------------------------------------------------


def resolve(host: str, port: int) -> list[tuple[Any, ...]]:
    names = {"elsewhere": "192.0.2.1", "localhost": "127.0.0.1", "0.0.0.0": "0.0.0.0"}
    if host not in names:
        raise socket.gaierror(-2, "Name or service not known")
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (names[host], port))]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"listeners": "PLAINTEXT://localhost:9092"}, []),
        ({"listeners": "PLAINTEXT://:9092"}, []),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "PLAINTEXT://elsewhere:1"}, []),
        ({"listeners": "PLAINTEXT://elsewhere:9092"}, ["listeners: elsewhere is not an address of this machine"]),
        ({"listeners": "PLAINTEXT://nowhere:9092"}, ["listeners: nowhere is not a known host"]),
        (
            {"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://nowhere:9092"},
            ["advertised.listeners: this machine cannot resolve nowhere"],
        ),
    ],
)
def test_addresses(settings: dict[str, str], said: list[str]) -> None:
    found = wrong(check_addresses(BrokerConfig(settings), resolve))
    assert [one.text for one in found] == said


@pytest.mark.parametrize(
    ("lines", "used", "level", "said"),
    [
        (["broker.id=2"], False, None, ""),
        (
            ["broker.id=1"],
            False,
            Level.WRONG,
            "broker 1 is already in the cluster, at kafka1:9092, and log.dirs=",
        ),
        (["broker.id=1", "listeners=PLAINTEXT://kafka1:9092"], True, None, ""),
        (["broker.id=1", "listeners=PLAINTEXT://:9092"], True, None, ""),
        (
            ["broker.id=1", "listeners=PLAINTEXT://:9093"],
            True,
            Level.NOTE,
            "and these settings advertise PLAINTEXT://:9093",
        ),
        (
            ["broker.id=1", "listeners=PLAINTEXT://k2:9092"],
            True,
            Level.NOTE,
            "and these settings advertise PLAINTEXT://k2:",
        ),
    ],
)
def test_a_number_that_another_broker_has(
    tmp_path: Path, lines: list[str], used: bool, level: Level | None, said: str
) -> None:
    if used:
        meta(tmp_path, "version=0\nbroker.id=1\ncluster.id=abc\n")
    settings = BrokerConfig.load(config(tmp_path, *lines))
    found = check_number(settings, {1: ("kafka1", 9092)})
    assert [one.level for one in found] == ([] if level is None else [level])
    assert all(said in one.text and one.remedy for one in found)
