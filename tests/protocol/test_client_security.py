"""The security of clients: settings, TLS handshakes that fail, and logins, against a server on the loopback."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gregor.config.definitions import ConfigError
from gregor.protocol.client_security import handshake_failure, security_of_client
from gregor.protocol.sync_client import SyncConnection
from tests.support.certificates import Authority

TIMEOUT_S = 30.0


@contextmanager
def server(context: ssl.SSLContext | None) -> Iterator[int]:
    """A server of one connection that makes the handshake, if it has a context, and sends nothing more."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        connection.settimeout(TIMEOUT_S)
        with suppress(OSError), connection:
            if context is None:
                connection.recv(1)
                connection.sendall(b"no TLS is here")
            else:
                with context.wrap_socket(connection, server_side=True) as encrypted:
                    encrypted.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        thread.join(TIMEOUT_S)
        listener.close()


def context_of(folder: Path, authority: Authority, *hosts: str, days: int = 3650) -> ssl.SSLContext:
    path = folder / "server.pem"
    path.write_text(authority.issue("server", hosts, days=days).pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def connect(port: int, trusted: Authority, **texts: str) -> None:
    security = security_of_client(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": trusted.pem,
            **{key.replace("_", "."): text for key, text in texts.items()},
        }
    )
    SyncConnection("localhost", port, "test", TIMEOUT_S, TIMEOUT_S, security).close()


def failure(port: int, trusted: Authority) -> str:
    with pytest.raises(OSError) as failed:
        connect(port, trusted)
    return handshake_failure(failed.value) or ""


def test_connection_to_a_server_with_a_trusted_certificate(tmp_path: Path, authority: Authority) -> None:
    with server(context_of(tmp_path, authority, "localhost")) as port:
        connect(port, authority)


def test_name_of_the_server_is_checked_unless_it_is_switched_off(tmp_path: Path, authority: Authority) -> None:
    context = context_of(tmp_path, authority, "elsewhere.example")
    with server(context) as port:
        assert "it is for another host name" in failure(port, authority)
    with server(context) as port:
        connect(port, authority, ssl_endpoint_identification_algorithm="")


def test_failed_handshakes_are_explained(tmp_path: Path, authority: Authority) -> None:
    with server(context_of(tmp_path, Authority("Another CA"), "localhost")) as port:
        assert "set ssl.truststore.location to the authority that issued it" in failure(port, authority)
    with server(context_of(tmp_path, authority, "localhost", days=-1)) as port:
        assert "it has expired" in failure(port, authority)
    with server(None) as port:
        assert "the port serves no TLS" in failure(port, authority)
    assert handshake_failure(ConnectionRefusedError("no")) is None


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS: must be one of"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "needs the options username and password"),
        ({"security.protocol": "SSL", "ssl.engine.factory.class": "x.Y"}, "gregor loads no classes of Java"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/no/such/file"}, "ssl.truststore.location"),
    ],
)
def test_settings_that_cannot_be_followed_are_refused(texts: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        security_of_client(texts)
