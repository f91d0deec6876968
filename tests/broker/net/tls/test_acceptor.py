"""TLS listeners over real sockets: clients with and without certificates, plain clients, half-open handshakes."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.net.tls import acceptor
from gregor.broker.net.tls.connection import TlsConnection
from gregor.broker.security import strangers
from gregor.config.broker import BrokerConfig
from gregor.config.security.settings import TlsSettings
from gregor.config.security.tls import client_context
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import ApiVersionsRequest
from gregor.replication.admin.configs import replacement
from tests.broker.harness import LIMIT_S, batch, bytes_of, fetch_request, produce_request
from tests.broker.test_server import Client, World, run, with_topic
from tests.support.certificates import Certificates, Identity

__all__ = ["run"]  # a fixture


class TlsWorld(World):
    """A server with a TLS listener, and one in clear text for its own use."""

    def __init__(self, folder: Path, certificates: Certificates, **settings: str) -> None:
        self.certificates = certificates
        own = {key.replace(".", "_"): text for key, text in certificates.broker_settings.items()}
        listeners = "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"
        super().__init__(folder, **{"listeners": listeners, **own, **settings})

    @property
    def port(self) -> int:
        return self.server.listeners.ports["SSL"]

    async def tls_client(self, identity: Identity | None = None, **settings: str) -> Client:
        context = client_context_of(self.certificates, identity, **settings)
        opened = asyncio.open_connection("localhost", self.port, ssl=context, limit=64 * 1024 * 1024)
        client = Client(*await opened)
        self.clients.append(client)
        return client


def client_context_of(certificates: Certificates, identity: Identity | None, **settings: str) -> ssl.SSLContext:
    given = {"ssl.truststore.type": "PEM", "ssl.truststore.location": certificates.ca_file}
    if identity is not None:
        given |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": identity.key_pem,
            "ssl.keystore.certificate.chain": identity.chain_pem,
        }
    config = BrokerConfig({**given, **{key.replace("_", "."): text for key, text in settings.items()}})
    return client_context(TlsSettings.of_listener(config, "PLAINTEXT"))


async def until(condition: Callable[[], object]) -> None:
    """Wait for what no event reports; `run` limits the time."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def connections_of(world: World) -> list[Any]:
    """The connections of the TLS listener, and its unfinished handshakes."""
    return [one for one in world.server.broker.connections.present if one.listener == "SSL"]


def test_a_client_is_served_and_receives_large_fetches(run: Any, tmp_path: Path, certificates: Certificates) -> None:
    async def test() -> None:
        async with TlsWorld(tmp_path, certificates) as world:
            client = await world.tls_client()
            await with_topic(client)
            value = bytes(range(256)) * 3000
            for _ in range(4):
                answer = await client.ask(produce_request("t", batch(value)), 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
            # One batch at a time is sent by one write with its response, four by several writes, past the burst.
            for size_bytes, batches in ((800_000, 1), (8_000_000, 4)):
                fetched = await client.ask(fetch_request([("t", 0, 0)], partition_max_bytes=size_bytes), 11)
                (topic,) = fetched.responses
                assert bytes(bytes_of(topic.partitions[0])).count(value) == batches

    run(test())


@pytest.mark.parametrize(
    ("auth", "identity", "name"),
    [
        ("none", "alice", "ANONYMOUS"),
        ("requested", None, "ANONYMOUS"),
        ("requested", "alice", "CN=alice,O=Tests"),
        ("required", "bob", "CN=bob,O=Tests"),
    ],
)
def test_principal_is_the_subject_of_the_certificate(
    run: Any, tmp_path: Path, certificates: Certificates, auth: str, identity: str | None, name: str
) -> None:
    async def test() -> None:
        async with TlsWorld(tmp_path, certificates, ssl_client_auth=auth) as world:
            client = await world.tls_client(getattr(certificates, identity) if identity else None)
            await client.ask(ApiVersionsRequest(), 0)
            (connection,) = connections_of(world)
            assert str(connection.principal) == f"User:{name}"

    run(test())


def test_a_mapping_rule_makes_the_name(run: Any, tmp_path: Path, certificates: Certificates, caplog: Any) -> None:
    rules = "RULE:^CN=(al.*?),O=.*$/$1@tests/U"

    async def test() -> None:
        settings = {"ssl_client_auth": "required", "listener.name.ssl.ssl.principal.mapping.rules": rules}
        async with TlsWorld(tmp_path, certificates, **settings) as world:
            client = await world.tls_client(certificates.alice)
            await client.ask(ApiVersionsRequest(), 0)
            (connection,) = connections_of(world)
            assert connection.principal.name == "ALICE@TESTS"
            other = await world.tls_client(certificates.bob)
            assert await other.reader.read() == b""
            assert "the client cannot be authenticated: no rule of ssl.principal.mapping.rules" in caplog.text

    run(test())


@pytest.mark.parametrize(
    ("identity", "alert", "reason"),
    [
        (None, "certificate_required|certificate required", "the client presented no certificate"),
        ("stranger", "unknown ca", "the client's certificate is refused: self-signed certificate"),
    ],
)
def test_refused_client_receives_an_alert_and_is_logged_once(
    run: Any,
    tmp_path: Path,
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    identity: str | None,
    alert: str,
    reason: str,
) -> None:
    async def test() -> None:
        async with TlsWorld(tmp_path, certificates, ssl_client_auth="required") as world:
            with pytest.raises(ssl.SSLError) as refusal:
                client = await world.tls_client(getattr(certificates, identity) if identity else None)
                await client.reader.read()  # in TLS 1.3 the client's side of the handshake is over before the refusal
            assert any(one in str(refusal.value).lower().replace("_", " ") for one in alert.split("|"))
            await until(lambda: not connections_of(world))
            (line,) = [one for one in caplog.messages if "TLS handshake failed" in one]
            assert line.startswith("closing connection from 127.0.0.1:") and reason in line

    run(test())


def test_clients_that_speak_no_tls_are_told_apart(
    run: Any, tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with TlsWorld(tmp_path, certificates) as world:
            for data, reason in (
                (b"\0\0\0\x10\0\x12\0\x03", "must be SSL or SASL_SSL here"),
                (b"GET / HTTP/1.1\r\n", "instead of a TLS handshake"),
                (b"\x16\x03\x01\0\x05hello", "the TLS handshake failed"),
                (b"", "closed it before a TLS handshake"),
            ):
                caplog.clear()
                reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
                writer.write(data)
                if not data:
                    writer.write_eof()
                await _end_of(reader)
                writer.close()
                await until(lambda: not connections_of(world))
                (line,) = [one for one in caplog.messages if "closing connection" in one]
                assert reason in line
            client = await world.tls_client()
            assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0

    run(test())


async def _end_of(reader: asyncio.StreamReader) -> None:
    try:
        await reader.read()
    except ConnectionResetError:
        return


def test_handshakes_that_do_not_end(
    run: Any, tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    """A client is served beside them; beyond the limit the oldest ends, the others by their time or with the broker."""
    monkeypatch.setattr(strangers, "MAX_STRANGERS", 20)

    async def test() -> None:
        async with TlsWorld(tmp_path, certificates) as world:
            loop = asyncio.get_running_loop()
            half_open = []
            for _ in range(25):
                sock = socket.socket()
                sock.setblocking(False)
                await loop.sock_connect(sock, ("127.0.0.1", world.port))
                half_open.append(sock)
            await until(lambda: len(caplog.messages) and caplog.text.count("other TLS handshakes are unfinished") == 5)
            assert len(connections_of(world)) == 20
            for sock in half_open[:5]:
                assert await loop.sock_recv(sock, 1) == b""
            half_open[-1].send(b"\x16\x03\x01\x02\0\x01")  # the beginning of a long ClientHello
            client = await world.tls_client()
            assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0
            monkeypatch.setattr(acceptor, "HANDSHAKE_TIMEOUT_S", 0.05)
            late = socket.create_connection(("127.0.0.1", world.port))
            await until(lambda: "its TLS handshake was not over" in caplog.text)
        for sock in (*half_open, late):
            sock.close()

    run(test())


def test_delayed_handshakes_do_not_count_as_unfinished(
    run: Any, tmp_path: Path, certificates: Certificates, caplog: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(strangers, "MAX_STRANGERS", 2)

    async def test() -> None:
        async with TlsWorld(tmp_path, certificates) as world:
            monkeypatch.setattr(world.server.broker.connections, "delay_s", lambda _listener, _now_s: LIMIT_S)
            delayed = [socket.create_connection(("127.0.0.1", world.port)) for _ in range(4)]
            await until(lambda: len(connections_of(world)) == 4)
            assert "other TLS handshakes are unfinished" not in caplog.text
            world.server.listeners.close()
            assert not connections_of(world), "they end with the listener"
            for sock in delayed:
                sock.close()

    run(test())


def test_max_connections_counts_handshakes(run: Any, tmp_path: Path, certificates: Certificates, caplog: Any) -> None:
    async def test() -> None:
        settings = {"listener.name.ssl.max.connections": "1"}
        async with TlsWorld(tmp_path, certificates, **settings) as world:
            sock = socket.create_connection(("127.0.0.1", world.port))
            await until(lambda: len(connections_of(world)) == 1)
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            await _end_of(reader)
            assert "max.connections=1 of the listener SSL are open" in caplog.text
            sock.close()
            writer.close()
            await until(lambda: not connections_of(world))
            client = await world.tls_client()
            assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0

    run(test())


def test_the_rate_of_an_address_counts_each_connection_once_before_its_handshake(
    run: Any, tmp_path: Path, certificates: Certificates, caplog: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(strangers, "MAX_STRANGERS", 2)

    async def test() -> None:
        async with TlsWorld(tmp_path, certificates) as world:
            counted: list[str] = []
            answers = [20, int(LIMIT_S * 1000), int(LIMIT_S * 1000), 0]

            def throttle_ms(address: str, _now_ms: int) -> int:
                counted.append(address)
                return answers[len(counted) - 1]

            broker = world.server.broker
            quotas = SimpleNamespace(connections=SimpleNamespace(throttle_ms=throttle_ms), now_ms=lambda: 0)
            with monkeypatch.context() as patched, caplog.at_level(logging.DEBUG, "gregor"):
                patched.setattr(broker, "quotas", quotas)
                reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
                await _end_of(reader)
                writer.close()
                assert "its address exceeds connection_creation_rate" in caplog.text
                held = [socket.create_connection(("127.0.0.1", world.port)) for _ in range(2)]
                await until(lambda: len(counted) == 3)
                await world.tls_client()
                await until(lambda: any(isinstance(one, TlsConnection) for one in connections_of(world)))
            assert counted == ["127.0.0.1"] * 4
            assert "other TLS handshakes are unfinished" not in caplog.text
            for sock in held:
                sock.close()

    run(test())


async def alter(world: TlsWorld, **configs: str) -> None:
    await world.server.broker.admin.settings.alter("brokers", "0", replacement(configs))


def serial_of(client: Client) -> str:
    return str(client.writer.get_extra_info("peercert")["serialNumber"])


def test_certificates_are_exchanged_while_the_broker_runs(
    run: Any, tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = certificates.HOSTS
    second, third = (certificates.authority.issue("localhost", hosts) for _ in range(2))
    other_subject = certificates.authority.issue("elsewhere", hosts)
    key = "listener.name.ssl.ssl.keystore.location"

    async def test() -> None:
        async with TlsWorld(tmp_path / "logs", certificates) as world:
            first = await world.tls_client()
            own = tmp_path / "own.pem"
            own.write_text(second.pem)
            await alter(world, **{key: str(own)})
            client = await world.tls_client()
            assert int(serial_of(client), 16) == second.chain[0].serial_number
            own.write_text(third.pem)
            world.server.listeners.follow()
            client = await world.tls_client()
            assert int(serial_of(client), 16) == third.chain[0].serial_number
            # Neither a broken file nor one with another name replaces it, and a setting with either is refused.
            own.write_text("nothing")
            world.server.listeners.follow()
            assert "the TLS context of the listener SSL stays as it was" in caplog.text
            client = await world.tls_client()
            assert int(serial_of(client), 16) == third.chain[0].serial_number
            for file_name, text in (("missing.pem", None), ("other.pem", other_subject.pem)):
                path = tmp_path / file_name
                if text is not None:
                    path.write_text(text)
                with pytest.raises(KafkaError) as refusal:
                    await alter(world, **{key: str(path)})
                assert refusal.value.code is ErrorCode.INVALID_REQUEST
            assert "the subject of the new certificate is CN=elsewhere,O=Tests" in str(refusal.value)
            assert (await first.ask(ApiVersionsRequest(), 0)).error_code == 0

    run(test())


def test_a_tls_listener_comes_while_the_broker_runs(run: Any, tmp_path: Path, certificates: Certificates) -> None:
    async def test() -> None:
        async with TlsWorld(tmp_path, certificates) as world:
            plain, encrypted = world.server.listeners.ports["PLAINTEXT"], world.port
            listeners = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{encrypted},NEW://127.0.0.1:0"
            configs = {"listeners": listeners, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,NEW:SSL"}
            broken = {**configs, "listener.name.new.ssl.keystore.location": str(tmp_path / "missing.pem")}
            with pytest.raises(KafkaError, match="missing.pem: the file cannot be read"):
                await alter(world, **broken)
            await alter(world, **configs)
            await until(lambda: "NEW" in world.server.listeners.ports)
            context = client_context_of(certificates, None)
            reader, writer = await asyncio.open_connection(
                "localhost", world.server.listeners.ports["NEW"], ssl=context
            )
            client = Client(reader, writer)
            assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0
            writer.close()

    run(test())


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_each_version_is_served(run: Any, tmp_path: Path, certificates: Certificates, protocol: str) -> None:
    async def test() -> None:
        async with TlsWorld(tmp_path, certificates, ssl_enabled_protocols=protocol) as world:
            client = await world.tls_client()
            assert client.writer.get_extra_info("ssl_object").version() == protocol
            assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0

    run(test())
