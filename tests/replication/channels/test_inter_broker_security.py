"""replication.channels.inter_broker_security: a broker that authenticates to others with a token of a provider, or with
a ticket of Kerberos."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest

from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.config.security.settings import TlsSettings
from gregor.config.security.tls import server_context
from gregor.protocol.sasl.mechanism import AuthenticationFailed
from gregor.protocol.sasl.token_endpoint import tokens_of
from gregor.replication.channels.inter_broker_security import security_between_brokers
from tests.support.certificates import Certificates
from tests.support.fake_gssapi import fake_gssapi
from tests.support.identity_provider import identity_provider, token_body

SECRET = "planted-broker-secret"
BASE = {
    "listeners": "INSIDE://localhost:9092",
    "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://login.example/keys",
}
KEYS = {
    "sasl.oauthbearer.client.credentials.client.id": "broker",
    "sasl.oauthbearer.client.credentials.client.secret": SECRET,
}
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OPTIONS = {
    "listener.name.inside.oauthbearer.sasl.jaas.config": (
        f'{MODULE} required clientId="broker" clientSecret="{SECRET}";'
    ),
}


@pytest.mark.parametrize("credentials", [KEYS, OPTIONS], ids=["4.x", "3.x"])
@pytest.mark.parametrize("prefix", ["", "listener.name.inside."])
def test_connections_of_a_broker_share_a_token(credentials: dict[str, str], prefix: str) -> None:
    tokens_of.cache_clear()
    with identity_provider(lambda: (200, token_body("opaque", expires_in=10_000))) as provider:
        url = {f"{prefix}sasl.oauthbearer.token.endpoint.url": provider.url}
        security = security_between_brokers(BrokerConfig({**BASE, **credentials, **url}))
        assert provider.requests == []
        assert security.new_mechanism is not None
        for _ in range(2):
            assert security.new_mechanism("localhost").first() == b"n,,\x01auth=Bearer opaque\x01\x01"
    assert len(provider.requests) == 1


def test_token_that_a_provider_refuses_fails_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    tokens_of.cache_clear()
    with identity_provider(lambda: (401, b'{"error":"invalid_client"}')) as provider, caplog.at_level(logging.DEBUG):
        url = {"sasl.oauthbearer.token.endpoint.url": provider.url}
        security = security_between_brokers(BrokerConfig({**BASE, **KEYS, **url}))
        assert security.new_mechanism is not None
        with pytest.raises(AuthenticationFailed, match=r"client broker: .* status 401 \(invalid_client\)") as failed:
            security.new_mechanism("localhost").first()
    assert SECRET not in str(failed.value) + caplog.text


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({}, "set sasl.oauthbearer.token.endpoint.url to fetch one"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://a/b"}, r"client\.secret=: is not set"),
        ({"sasl.oauthbearer.token.endpoint.url": "a/b", **KEYS}, "must be a URL that begins with https"),
        ({"sasl.oauthbearer.token.endpoint.url": "http://a/b", "sasl.login.refresh.window.factor": "9", **KEYS}, "0.5"),
    ],
)
def test_settings_without_a_token_stop_the_start(texts: dict[str, str], message: str) -> None:
    given = {"sasl.oauthbearer.client.credentials.client.id": "broker", **texts}
    with pytest.raises(ConfigError, match=message) as refused:
        security_between_brokers(BrokerConfig({**BASE, **given}))
    assert SECRET not in str(refused.value)


KERBEROS = {
    **BASE,
    "sasl.enabled.mechanisms": "GSSAPI",
    "sasl.mechanism.inter.broker.protocol": "GSSAPI",
    "sasl.kerberos.service.name": "kafka",
    "listener.name.inside.gssapi.sasl.jaas.config": (
        'x.Krb5LoginModule required useKeyTab=true keyTab="kafka/a@R" principal="kafka/a@R";'
    ),
}


def test_ticket_is_for_the_service_on_the_host_of_the_other_broker() -> None:
    with fake_gssapi():
        security = security_between_brokers(BrokerConfig(KERBEROS))
        assert security.new_mechanism is not None
        assert security.new_mechanism("b.example").first() == b"kafka/a@R to kafka@b.example"


def test_kerberos_that_cannot_be_used_stops_the_start() -> None:
    with fake_gssapi(present=False), pytest.raises(ConfigError, match="pip install 'gregor.kerberos.'") as refused:
        security_between_brokers(BrokerConfig(KERBEROS))
    assert (refused.value.key, refused.value.value) == ("sasl.mechanism.inter.broker.protocol", "GSSAPI")
    key = "listener.name.inside.gssapi.sasl.jaas.config"
    other = {key: 'x.Krb5LoginModule required useKeyTab=true keyTab="other" principal="kafka/a@R";'}
    with fake_gssapi(), pytest.raises(ConfigError, match="No credentials cache found") as refused:
        security_between_brokers(BrokerConfig({**KERBEROS, **other}))
    assert refused.value.key == key


@pytest.mark.parametrize("change", ["file", "setting"])
def test_handshakes_after_a_change_have_the_new_certificate(
    tmp_path: Path, certificates: Certificates, change: str
) -> None:
    """The handshake itself, in memory: the other broker sees the serial number of the certificate."""
    first, second = (certificates.authority.issue("localhost", certificates.HOSTS) for _ in range(2))
    own, other = tmp_path / "own.pem", tmp_path / "other.pem"
    own.write_text(first.pem)
    other.write_text(second.pem)
    key = "listener.name.inside.ssl.keystore.location"
    given = {
        "listeners": "INSIDE://localhost:9092",
        "listener.security.protocol.map": "INSIDE:SSL",
        "inter.broker.listener.name": "INSIDE",
        "ssl.client.auth": "required",
        **certificates.broker_settings,
    }
    config = BrokerConfig({**given, key: str(own)})
    security = security_between_brokers(config)
    assert security.tls_context is not None
    other_broker = server_context(TlsSettings.of_listener(BrokerConfig(given), "INSIDE"))
    assert presented_serial(security.tls_context(), other_broker) == first.chain[0].serial_number
    if change == "file":
        own.write_text(second.pem)
    else:
        config.update_dynamic({key: str(other)}, {})
    assert presented_serial(security.tls_context(), other_broker) == second.chain[0].serial_number


def presented_serial(client: ssl.SSLContext, server: ssl.SSLContext) -> int:
    """Return the serial number of the certificate that a client presents in a handshake."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):  # more than the flights of any version
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    found = sides[1].getpeercert()
    assert found
    return int(str(found["serialNumber"]), 16)
