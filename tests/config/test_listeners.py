"""Listeners: the forms that are accepted, and the reason with which others are refused."""

from __future__ import annotations

import pytest

from gregor.config.definitions import ConfigError
from gregor.config.listeners import Listener, address_text, check_ports, parse_listeners, parse_protocol_map

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "OUTSIDE": "PLAINTEXT", "SSL": "SSL"}
NOBODY: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("PLAINTEXT://localhost:9092", ("PLAINTEXT", "localhost", 9092)),
        ("plaintext://:0", ("PLAINTEXT", "", 0)),
        ("Outside://0.0.0.0:65535", ("OUTSIDE", "0.0.0.0", 65535)),
        ("PLAINTEXT://[::1]:9092", ("PLAINTEXT", "::1", 9092)),
        ("PLAINTEXT://fe80::1%eth0:9092", ("PLAINTEXT", "fe80::1%eth0", 9092)),
        ("PLAINTEXT://my_host-1.example:9092", ("PLAINTEXT", "my_host-1.example", 9092)),
    ],
)
def test_forms(text: str, listener: tuple[str, str, int]) -> None:
    assert parse_listeners("listeners", [text], PROTOCOLS, NOBODY) == [Listener(*listener, "PLAINTEXT")]


def test_text() -> None:
    assert Listener("A", "::1", 1, "PLAINTEXT").text == "A://[::1]:1"
    assert Listener("A", "host", 1, "PLAINTEXT").text == "A://host:1"
    assert address_text("::1", 9092) == "[::1]:9092"
    assert address_text("localhost", 9092) == "localhost:9092"


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["localhost:9092"], "NAME://host:port"),
        (["PLAINTEXT://localhost"], "NAME://host:port"),
        (["PLAINTEXT://localhost:"], "NAME://host:port"),
        (["PLAINTEXT://localhost:65536"], "0 to 65535"),
        (["PLAINTEXT://localhost:" + "9" * 5000], "0 to 65535"),
        (["PLAINTEXT://localhost:-1"], "0 to 65535"),
        (["PLAINTEXT://local host:1"], "NAME://host:port"),
        (["://localhost:1"], "NAME://host:port"),
        (["PLAINTEXT://a:1", "plaintext://b:2"], "PLAINTEXT occurs twice"),
        (["INSIDE://a:1"], "INSIDE has no security protocol"),
        ([], "at least one"),
    ],
)
def test_refusals(texts: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        parse_listeners("listeners", texts, PROTOCOLS, NOBODY)
    assert caught.value.key == "listeners"


def test_a_controllers_listener_is_left_out() -> None:
    texts = ["PLAINTEXT://:9092", "CONTROLLER://:9093"]
    (listener,) = parse_listeners("listeners", texts, PROTOCOLS, frozenset(["CONTROLLER"]))
    assert listener.name == "PLAINTEXT"


@pytest.mark.parametrize(
    "texts",
    [
        ["PLAINTEXT://a:1", "OUTSIDE://a:2"],
        ["PLAINTEXT://a:0", "OUTSIDE://a:0"],
        ["PLAINTEXT://127.0.0.1:1", "OUTSIDE://[::1]:1"],
    ],
)
def test_ports_that_can_be_bound(texts: list[str]) -> None:
    check_ports("listeners", parse_listeners("listeners", texts, PROTOCOLS, NOBODY))


@pytest.mark.parametrize(
    "texts",
    [
        ["PLAINTEXT://a:1", "OUTSIDE://b:1"],
        ["PLAINTEXT://[::2]:1", "OUTSIDE://[::1]:1"],
        ["PLAINTEXT://host:1", "OUTSIDE://[::1]:1"],
        ["PLAINTEXT://1.2.3." + "9" * 5000 + ":1", "OUTSIDE://[::1]:1"],
    ],
)
def test_ports_that_cannot(texts: list[str]) -> None:
    with pytest.raises(ConfigError, match="1 occurs twice"):
        check_ports("listeners", parse_listeners("listeners", texts, PROTOCOLS, NOBODY))


def test_protocol_map() -> None:
    assert parse_protocol_map("a:plaintext, B : SSL,") == {"A": "PLAINTEXT", "B": "SSL"}
    assert parse_protocol_map("") == {}
    for text, reason in (("A", "pairs"), ("A:TCP", "one of PLAINTEXT"), (":SSL", "pairs"), ("A:SSL,a:SSL", "twice")):
        with pytest.raises(ConfigError, match=reason):
            parse_protocol_map(text)
