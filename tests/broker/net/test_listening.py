"""gregor.broker.net.listening: the sockets of a listener, and the error where it gets none."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gregor.broker.net.listening import BindError, bind
from gregor.config.broker import BrokerConfig


def sockets_of(text: str, **settings: str) -> list[socket.socket]:
    config = BrokerConfig({"listeners": text, **{key.replace("_", "."): value for key, value in settings.items()}})
    (listener,) = config.listeners
    return bind(listener, config)


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


def test_localhost_is_both_loopbacks_on_one_port(closing: ExitStack) -> None:
    sockets = [closing.enter_context(one) for one in sockets_of("PLAINTEXT://localhost:0")]
    assert [one.getsockname()[0] for one in sockets] == (["127.0.0.1", "::1"] if has_ipv6() else ["127.0.0.1"])
    assert len({one.getsockname()[1] for one in sockets}) == 1
    for one in sockets:
        closing.enter_context(socket.create_connection(one.getsockname()[:2], timeout=30))
        assert one.getblocking() is False


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("PLAINTEXT://127.0.0.1:0", ["127.0.0.1"]),
        ("PLAINTEXT://0.0.0.0:0", ["0.0.0.0"]),
        ("PLAINTEXT://:0", ["0.0.0.0", "::"] if has_ipv6() else ["0.0.0.0"]),
    ],
)
def test_hosts(closing: ExitStack, text: str, hosts: list[str]) -> None:
    sockets = [
        closing.enter_context(one) for one in sockets_of(text, advertised_listeners="PLAINTEXT://localhost:9092")
    ]
    assert [one.getsockname()[0] for one in sockets] == hosts


def test_a_port_in_use_is_told_and_nothing_stays_open(closing: ExitStack) -> None:
    (taken,) = [closing.enter_context(one) for one in sockets_of("PLAINTEXT://127.0.0.1:0")]
    port = taken.getsockname()[1]
    with pytest.raises(BindError, match=rf"127\.0\.0\.1:{port}.* in use"):
        sockets_of(f"PLAINTEXT://127.0.0.1:{port}")
    with pytest.raises(BindError, match=str(port)):
        sockets_of(f"PLAINTEXT://localhost:{port}")


def test_a_host_of_nobody(closing: ExitStack) -> None:
    with pytest.raises(BindError, match="192.0.2.1"):
        sockets_of("PLAINTEXT://192.0.2.1:0")


@pytest.mark.parametrize(
    ("key", "option"),
    [("socket_receive_buffer_bytes", socket.SO_RCVBUF), ("socket_send_buffer_bytes", socket.SO_SNDBUF)],
)
def test_buffer_sizes_are_the_kernels_unless_somebody_chose(closing: ExitStack, key: str, option: int) -> None:
    with socket.socket() as plain:
        kernels = plain.getsockopt(socket.SOL_SOCKET, option)

    def size(**settings: str) -> int:
        (one,) = sockets_of("PLAINTEXT://127.0.0.1:0", **settings)
        return closing.enter_context(one).getsockopt(socket.SOL_SOCKET, option)

    assert size() == size(**{key: "-1"}) == kernels
    assert size(**{key: "50000"}) == 100_000  # the kernel doubles it for its own book-keeping
