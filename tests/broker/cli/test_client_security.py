"""The settings of Java's clients in the form of librdkafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from gregor.broker.cli.client import client_settings, make_client
from gregor.broker.cli.client_security import channel_security, for_librdkafka
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.wire import WireClient
from gregor.protocol.sasl.token_endpoint import tokens_of
from tests.support.certificates import PASSWORD, Authority, Certificates
from tests.support.identity_provider import identity_provider, token_body
from tests.support.refusing_server import refusing_server

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_settings_of_librdkafka_stay_as_they_are() -> None:
    given = {"security.protocol": "SASL_SSL", "ssl.ca.location": "/ca.pem", "sasl.username": "u", "sasl.password": "p"}
    assert for_librdkafka(given) == given


def test_stores_and_jaas_are_translated(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "ca.pem").write_text(authority.pem)
    (tmp_path / "client.p12").write_bytes(authority.issue("client").pkcs12())
    found = for_librdkafka(
        {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(tmp_path / "ca.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.keystore.location": str(tmp_path / "client.p12"),
            "ssl.keystore.password": PASSWORD,
            "ssl.endpoint.identification.algorithm": "",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN} required username="anna" password="a;b";',
        }
    )
    assert found["ssl.ca.pem"].strip() == authority.pem.strip()
    assert found["ssl.key.pem"].startswith("-----BEGIN PRIVATE KEY-----")
    assert found["ssl.certificate.pem"].count("BEGIN CERTIFICATE") >= 1
    assert (found["sasl.username"], found["sasl.password"]) == ("anna", "a;b")
    assert found["ssl.endpoint.identification.algorithm"] == "none"
    assert not any("store" in key or "jaas" in key for key in found)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"ssl.truststore.location": "/no/such/file"},
            "ssl.truststore.location=/no/such/file: the file cannot be read",
        ),
        ({"sasl.jaas.config": "secret"}, r"sasl.jaas.config=\(hidden\): "),
        ({"ssl.enabled.protocols": "TLSv1.2"}, "chooses the TLS version itself"),
        ({"sasl.jaas.config": f"{PLAIN} required;"}, "needs a login module with username and password"),
    ],
)
def test_settings_that_cannot_be_followed_are_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(CommandError, match=text):
        for_librdkafka(given)


KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required"
SERVICE = {"sasl.kerberos.service.name": "kafka", "sasl.kerberos.ticket.renew.jitter": "0.05"}


@pytest.mark.parametrize(
    ("options", "identity"),
    [
        (
            'useKeyTab=true keyTab="/a.keytab" principal="a@R"',
            {"sasl.kerberos.keytab": "/a.keytab", "sasl.kerberos.principal": "a@R"},
        ),
        ("useTicketCache=true", {"sasl.kerberos.kinit.cmd": ""}),
    ],
)
def test_identity_in_kerberos_is_translated(options: str, identity: dict[str, str]) -> None:
    given = {"sasl.mechanism": "GSSAPI", **SERVICE, "sasl.jaas.config": f"{KERBEROS} {options};"}
    found = for_librdkafka(given)
    assert found == {"sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka", **identity}


@pytest.mark.parametrize(
    ("jaas", "text"),
    [
        (f"{KERBEROS} principal=a;", "Krb5LoginModule needs useKeyTab=true"),
        (f"{KERBEROS} useTicketCache=true serviceName=other;", "differs from the option serviceName=other"),
    ],
)
def test_identity_in_kerberos_that_is_refused(jaas: str, text: str) -> None:
    with pytest.raises(CommandError, match=text):
        for_librdkafka({"sasl.mechanism": "GSSAPI", **SERVICE, "sasl.jaas.config": jaas})


def test_client_library_without_gssapi_says_so() -> None:
    settings = client_settings("127.0.0.1:1", None, {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"})
    with pytest.raises(CommandError, match="confluent-kafka, was built without it.* pip install 'gregor.kerberos.'"):
        make_client(AdminClient, settings)


def test_own_client_names_the_key_that_is_wrong() -> None:
    with pytest.raises(CommandError, match=r"^sasl.mechanism=PLAIN: .*username and password.*\.$"):
        channel_security({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"})


def test_tokens_of_a_provider_come_by_a_callback() -> None:
    tokens_of.cache_clear()
    package = "org.apache.kafka.common.security.oauthbearer"
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": f'{package}.OAuthBearerLoginModule required clientId="anna" clientSecret="a-secret";',
        "sasl.login.retry.backoff.max.ms": "1",
    }
    with identity_provider(lambda: (200, token_body("opaque", expires_in=10_000))) as provider:
        url = {"sasl.oauthbearer.token.endpoint.url": provider.url}
        found = client_settings("localhost:9092", properties=given | url)
        assert found.pop("oauth_cb")("")[0] == "opaque"
        assert len(provider.requests) == 1
        assert {key for key in found if "sasl" in key} == {"sasl.mechanism"}
        tokens_of.cache_clear()
        provider.answer = lambda: (401, b"")
        with pytest.raises(CommandError, match=r"no token was fetched from .* for the client anna: .* the status 401"):
            client_settings("localhost:9092", properties=given | url)
        handler = {"sasl.login.callback.handler.class": "org.example.Handler"}
        with pytest.raises(CommandError, match="gregor loads no classes of Java"):
            client_settings("localhost:9092", properties=given | url | handler)


def test_method_of_librdkafka_stays() -> None:
    given = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}
    given |= {"sasl.oauthbearer.token.endpoint.url": "https://a/b"}
    assert "oauth_cb" not in client_settings("localhost:9092", properties=given)
    assert given.items() <= client_settings("localhost:9092", properties=given).items()


def test_certificate_that_is_refused_behind_the_handshake_is_reported_with_its_remedy(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    stranger = certificates.file("stranger.pem", certificates.stranger.pem)
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={certificates.ca_file}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={stranger}\n"
    )
    with refusing_server(certificates) as port, pytest.raises(CommandError, match="does not trust the certificate"):
        WireClient(f"127.0.0.1:{port}", str(file)).__enter__()
