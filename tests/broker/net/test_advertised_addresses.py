"""gregor.broker.net.advertised_addresses: the address of a broker for clients and other brokers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from gregor.broker.net import advertised_addresses as advertising
from gregor.broker.net.advertised_addresses import is_loopback, leads_astray, own_name, seen_by_clients


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A machine called `vm`; its full name, if the resolver knows one."""
    known = {"vm": "vm.example.org"}

    def resolve(name: str, port: Any) -> list[Any]:
        if name not in known:
            raise socket.gaierror(-2, "Name or service not known")
        return [()]

    monkeypatch.setattr(socket, "gethostname", lambda: "vm")
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "getfqdn", lambda name: known[name])
    own_name.cache_clear()
    yield known
    own_name.cache_clear()


def test_the_full_name_in_a_cluster(machine: dict[str, str]) -> None:
    assert own_name(True) == "vm.example.org"
    assert own_name(False) == "vm"


def test_never_a_name_that_every_machine_has(machine: dict[str, str]) -> None:
    machine["vm"] = "localhost.localdomain"
    assert own_name(True) == "vm"


@pytest.mark.parametrize(("address", "told"), [("192.0.2.7", "192.0.2.7"), (None, "vm")])
def test_a_name_that_leads_nowhere(
    machine: dict[str, str], monkeypatch: pytest.MonkeyPatch, address: str | None, told: str
) -> None:
    machine.clear()
    monkeypatch.setattr(advertising, "_address_of_default_route", lambda: address)
    assert own_name(True) == told


def test_a_lone_broker_does_not_wait_for_the_resolver(machine: dict[str, str]) -> None:
    machine.clear()
    assert own_name(False) == "vm"


def test_what_clients_are_told() -> None:
    assert seen_by_clients([], "vm", True) == []
    (alone,) = seen_by_clients(["PLAINTEXT"], "vm", False)
    assert "the address that it connected to. Behind a forwarded port" in alone
    (member,) = seen_by_clients(["B", "A"], "vm", True)
    assert member.startswith("A, B: ")
    assert "for other brokers, and for clients of those, vm is advertised" in member


@pytest.mark.parametrize(
    ("hosts", "connect", "lines"),
    [
        (["localhost"], "", 0),
        (["localhost"], "localhost:2181,127.0.0.1:2182,[::1]:2183/kafka", 0),
        (["localhost"], "zoo1:2181,localhost:2181", 1),
        (["127.0.0.1", "192.0.2.7"], "192.0.2.9:2181/kafka", 1),
        (["kafka1", "192.0.2.7"], "zoo1:2181", 0),
    ],
)
def test_who_only_its_own_machine_can_reach(hosts: list[str], connect: str, lines: int) -> None:
    assert len(leads_astray(hosts, connect)) == lines


@pytest.mark.parametrize(
    ("host", "local"), [("LOCALHOST", True), ("127.0.1.1", True), ("::1", True), ("vm", False), ("::", False)]
)
def test_loopbacks(host: str, local: bool) -> None:
    assert is_loopback(host) is local
