"""Settings for the client library, and finding out that there is no broker."""

from __future__ import annotations

import pathlib
import socket
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from gregor.broker.cli.client import (
    METADATA_TIMEOUT_S,
    METADATA_TIMEOUTS_S,
    Refusal,
    check_reachable,
    client_settings,
    collect_results,
    fetch_metadata,
    make_client,
    parse_bootstrap,
    require_results,
)
from gregor.broker.cli.errors import CommandError
from tests.support.processes import free_port


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
        ("a.example.:1,\u00e4.example:2", [("a.example.", 1), ("\u00e4.example", 2)]),
    ],
)
def test_bootstrap_addresses(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize(
    "text",
    [
        *("", "localhost", ":9092", "a:b", "a:0", "a:70000", "a:1,,b:2", "a:-1", "[]:1", "a:" + "9" * 5000),
        *("kafka..example:9092", ".a:1", "h" * 64 + ".a:1", "\u00e4..a:1"),
    ],
)
def test_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="not an address"):
        parse_bootstrap(text)


def test_properties_win_over_the_file_and_java_names_are_understood(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# comment\nlinger.ms=1\nclient.id : mine\nkey.serializer=x.y.Z\nbuffer.memory=65536\n")
    settings = client_settings("a:1", str(file), {"linger.ms": " 7 ", "max.request.size": "9"})
    logger = settings.pop("logger")
    assert isinstance(settings.pop("error_cb"), Refusal)
    assert settings == {
        "bootstrap.servers": "a:1",
        "client.id": "mine",
        "linger.ms": "7",
        "queue.buffering.max.kbytes": 64,
        "message.max.bytes": "9",
    }
    assert not logger.propagate


def test_files_that_cannot_be_read(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        client_settings("a:1", str(tmp_path / "none"))
    broken = tmp_path / "broken"
    broken.write_text("a=\\u00zz")
    with pytest.raises(CommandError, match="broken"):
        client_settings("a:1", str(broken))


def test_memory_that_is_no_number_is_named() -> None:
    with pytest.raises(CommandError, match="buffer.memory=abc is not a number of bytes"):
        client_settings("a:1", None, {"buffer.memory": "abc"})


def test_settings_that_the_client_refuses() -> None:
    with pytest.raises(CommandError, match='"no such"'):
        make_client(AdminClient, client_settings("a:1", None, {"no such": "1"}))


@pytest.mark.parametrize(
    ("code", "text", "is_kept"),
    [
        (KafkaError._AUTHENTICATION, "SASL authentication error: Authentication failed: wrong password", True),
        (KafkaError._SSL, "SSL handshake failed: certificate verify failed", True),
        (KafkaError._TRANSPORT, "Connection refused", False),
        (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down", False),
        # These end by themselves: the broker is restarting, or the identity provider is.
        (KafkaError._AUTHENTICATION, "SASL PLAIN mechanism handshake failed: Local: Broker transport failure", False),
        (KafkaError._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token: timed out", False),
    ],
)
def test_a_refusal_is_kept(code: int, text: str, is_kept: bool) -> None:
    refusal = Refusal()
    refusal(KafkaError(code, text))
    refusal(KafkaError(KafkaError._AUTHENTICATION, "second"))
    with pytest.raises(KafkaException, match=text if is_kept else "second"):
        refusal.check()


def test_metadata_of_a_slow_broker_are_waited_for_unless_it_refuses_the_client() -> None:
    refusal = Refusal()

    class Slow:
        """A client whose third attempt succeeds."""

        attempts = 0

        def list_topics(self, timeout: float) -> str:
            self.attempts += 1
            if self.attempts < 3:
                raise KafkaException(KafkaError(KafkaError._TRANSPORT, "Failed to get metadata"))
            return f"metadata within {timeout}"

        def poll(self, _timeout_s: float) -> None:
            """Its callback is called by the test."""

    client: Any = Slow()
    assert str(fetch_metadata(client, refusal)) == "metadata within 2.0"
    assert sum(METADATA_TIMEOUTS_S) == METADATA_TIMEOUT_S
    refused: Any = Slow()
    refusal(KafkaError(KafkaError._SSL, "certificate verify failed"))
    with pytest.raises(KafkaException, match="certificate verify failed"):
        fetch_metadata(refused, refusal)
    assert refused.attempts == 1


def test_a_listening_broker_is_reachable_even_after_a_dead_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_reachable(f"127.0.0.1:{free_port()},127.0.0.1:{server.getsockname()[1]}", timeout_s=0)


def test_error_without_a_broker_has_cause_and_remedy() -> None:
    with pytest.raises(CommandError, match=r"127.0.0.1:\d+: connection refused.*gregor start"):
        check_reachable(f"127.0.0.1:{free_port()}", timeout_s=0)


def test_an_unknown_host_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    with pytest.raises(CommandError, match="nowhere: unknown host"):
        check_reachable("nowhere:1", timeout_s=60)


def test_settle_tells_success_from_failure() -> None:
    good: Future[int] = Future()
    good.set_result(1)
    bad: Future[int] = Future()
    bad.set_exception(KafkaException(KafkaError(KafkaError.INVALID_CONFIG, "no")))
    done, failed = collect_results({"good": good, "bad": bad})
    assert done == {"good": 1}
    assert failed["bad"].code() == KafkaError.INVALID_CONFIG
    assert require_results({"good": good}) == {"good": 1}
    with pytest.raises(KafkaException):
        require_results({"bad": bad})


def test_settings_of_a_consumer_in_java_do_not_end_a_command() -> None:
    ignored = ("metadata.max.idle.ms", "socket.connection.setup.timeout.max.ms", "metrics.num.samples")
    settings = client_settings("127.0.0.1:1", None, {"fetch.max.wait.ms": "100", **dict.fromkeys(ignored, "1000")})
    assert settings["fetch.wait.max.ms"] == "100"
    make_client(Consumer, {**settings, "group.id": "g"}).close()
