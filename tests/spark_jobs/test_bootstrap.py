"""Addresses of brokers, and whether one of them answers."""

import socket

import pytest

from gregor.spark_jobs.bootstrap import parse_servers, require_broker
from gregor.spark_jobs.errors import JobError


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b.example:65535", [("a", 1), ("b.example", 65535)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("PLAINTEXT://10.0.0.1:9092", [("10.0.0.1", 9092)]),
    ],
)
def test_servers_are_read(text: str, servers: list[tuple[str, int]]) -> None:
    assert parse_servers(text) == servers


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        "localhost:",
        "localhost:0",
        "localhost:65536",
        "a:1,,b:2",
        "::1:9092",
        "a..b:9092",
        f"{'a' * 64}:9092",
    ],
)
def test_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(JobError, match="is not an address of a broker; give HOST:PORT"):
        parse_servers(text)


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_one_listening_server_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        require_broker(f"127.0.0.1:{closed_port()},127.0.0.1:{server.getsockname()[1]}")


def test_each_silent_server_is_named() -> None:
    one, two = closed_port(), closed_port()
    with pytest.raises(JobError, match=rf"(?s)127.0.0.1:{one}: .*refused.*127.0.0.1:{two}: .*refused.*gregor start"):
        require_broker(f"127.0.0.1:{one},127.0.0.1:{two}")
