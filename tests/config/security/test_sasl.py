"""config.security.sasl: where the settings of a listener come from, and which stop the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.config.describe import describe_broker_key
from gregor.config.security.principal_rules import KERBEROS_KEY
from gregor.config.security.sasl import SaslSettings

PREFIX = "listener.name.inside."
PLAIN = {
    f"{PREFIX}plain.sasl.jaas.config": 'x.PlainLoginModule required username="b" user_alice="s3cret" user_b="";',
}
BASE = {
    "listeners": "INSIDE://localhost:9092",
    "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
}


def config(texts: dict[str, str]) -> BrokerConfig:
    return BrokerConfig({**BASE, **texts})


def test_users_of_plain() -> None:
    found = SaslSettings.of_listener(config({"sasl.enabled.mechanisms": "PLAIN", **PLAIN}), "INSIDE")
    assert found.mechanisms == ("PLAIN",)
    assert found.passwords == {"alice": "s3cret", "b": ""}
    assert (found.max_reauth_ms, found.failure_delay_ms, found.max_request_bytes) == ({"PLAIN": 0}, 100, 524288)
    assert "s3cret" not in repr(found)


def test_mechanism_before_listener_before_broker() -> None:
    texts = {
        "sasl.enabled.mechanisms": "GSSAPI",
        f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "connections.max.reauth.ms": "1",
        f"{PREFIX}connections.max.reauth.ms": "2",
        f"{PREFIX}scram-sha-512.connections.max.reauth.ms": "3",
        "connection.failed.authentication.delay.ms": "7",
        f"{PREFIX}sasl.server.max.receive.size": "1000",
        **PLAIN,
    }
    found = SaslSettings.of_listener(config(texts), "INSIDE")
    assert found.max_reauth_ms == {"PLAIN": 2, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 3}
    assert (found.failure_delay_ms, found.max_request_bytes) == (7, 1000)


def test_secrets_are_neither_noted_nor_described() -> None:
    broker = config({"sasl.enabled.mechanisms": "PLAIN", **PLAIN})
    assert broker.notes == broker.warnings == []
    entry = describe_broker_key(f"{PREFIX}plain.sasl.jaas.config", broker)
    assert entry.sensitive
    assert "s3cret" not in repr(entry)


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({}, "could authenticate with GSSAPI, .*set listener.name.inside.sasl.enabled.mechanisms to some of PLAIN, "),
        ({"sasl.enabled.mechanisms": "LDAP"}, "LDAP is no mechanism"),
        ({"sasl.enabled.mechanisms": ""}, "one mechanism at least"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "listener.name.inside.plain.sasl.jaas.config=: is not set"),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                f"{PREFIX}plain.sasl.jaas.config": "x.PlainLoginModule required s3cret",
            },
            "hidden.: an option has no value",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", f"{PREFIX}plain.sasl.jaas.config": "x.ScramLoginModule required;"},
            "names x.ScramLoginModule; PLAIN needs PlainLoginModule",
        ),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                **PLAIN,
                f"{PREFIX}plain.sasl.server.callback.handler.class": "my.Ldap",
            },
            "gregor runs no classes of Java",
        ),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "jwks.endpoint.url=: is not set, so no token could be verified"),
        (
            {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": "ftp://a"},
            "must begin with https://",
        ),
    ],
)
def test_refusals(texts: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        config(texts)
    assert "s3cret" not in str(refused.value)


def test_unsecured_tokens_need_an_option_that_says_so() -> None:
    key = f"{PREFIX}oauthbearer.sasl.jaas.config"
    module = "x.OAuthBearerLoginModule required"
    with pytest.raises(ConfigError, match="for tests only"):
        config({"sasl.enabled.mechanisms": "OAUTHBEARER", key: f"{module};"})
    texts = {"sasl.enabled.mechanisms": "OAUTHBEARER", key: f'{module} unsecuredValidatorPrincipalClaimName="sub";'}
    assert SaslSettings.of_listener(config(texts), "INSIDE").jwks is None


def test_key_set_of_an_identity_provider() -> None:
    texts = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{PREFIX}sasl.oauthbearer.jwks.endpoint.url": "https://a/keys",
        "sasl.oauthbearer.expected.audience": "x,y",
    }
    found = SaslSettings.of_listener(config(texts), "INSIDE").jwks
    assert found is not None
    assert (found.url, found.audiences, found.clock_skew_s) == ("https://a/keys", {"x", "y"}, 30)


def test_each_setting_of_tokens_may_be_one_of_the_mechanism_of_a_listener() -> None:
    mechanism = f"{PREFIX}oauthbearer."
    broker = config(
        {
            f"{PREFIX}sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{mechanism}sasl.oauthbearer.jwks.endpoint.url": "https://own/keys",
            f"{PREFIX}sasl.oauthbearer.jwks.endpoint.url": "https://listener/keys",
            f"{mechanism}sasl.oauthbearer.expected.audience": "x",
            f"{mechanism}sasl.oauthbearer.expected.issuer": "me",
            f"{mechanism}sasl.oauthbearer.clock.skew.seconds": "5",
        }
    )
    found = SaslSettings.of_listener(broker, "INSIDE").jwks
    assert found is not None
    assert (found.url, found.audiences, found.issuer, found.clock_skew_s) == ("https://own/keys", {"x"}, "me", 5)
    assert broker.notes == broker.warnings == []


VALIDATOR = "sasl.oauthbearer.jwt.validator.class"
OF_KAFKA = "org.apache.kafka.common.security.oauthbearer."
SIGNED = {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": "https://a/keys"}


@pytest.mark.parametrize("key", [VALIDATOR, f"{PREFIX}{VALIDATOR}", f"{PREFIX}oauthbearer.{VALIDATOR}"])
@pytest.mark.parametrize("name", ["my.StrictValidator", f"{OF_KAFKA}ClientJwtValidator", "my.BrokerJwtValidator"])
def test_another_validator_of_tokens_stops_the_start(key: str, name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config({**SIGNED, key: name, "gregor.allow.unprotected": "true"})
    assert str(refused.value) == (
        f"{key}={name}: gregor runs no classes of Java and checks tokens itself, as BrokerJwtValidator does: remove it"
    )


@pytest.mark.parametrize("key", [VALIDATOR, f"{PREFIX}{VALIDATOR}", f"{PREFIX}oauthbearer.{VALIDATOR}"])
@pytest.mark.parametrize("name", ["", f"{OF_KAFKA}DefaultJwtValidator", f"{OF_KAFKA}BrokerJwtValidator"])
def test_a_validator_that_checks_what_gregor_checks_is_accepted(key: str, name: str) -> None:
    broker = config({**SIGNED, key: name})
    assert broker.notes == broker.warnings == []


def test_a_validator_of_signed_tokens_accepts_no_unsecured_ones() -> None:
    module = "x.OAuthBearerLoginModule required unsecuredValidatorPrincipalClaimName=sub;"
    texts = {"sasl.enabled.mechanisms": "OAUTHBEARER", f"{PREFIX}oauthbearer.sasl.jaas.config": module}
    with pytest.raises(ConfigError, match=r"jwks.endpoint.url=: is not set, so no token could be verified"):
        config({**texts, VALIDATOR: f"{OF_KAFKA}BrokerJwtValidator"})
    config({**texts, VALIDATOR: f"{OF_KAFKA}DefaultJwtValidator"})


def test_options_of_the_login_module_are_the_tls_of_the_keys_and_are_checked_at_the_start(tmp_path: Path) -> None:
    key = f"{PREFIX}oauthbearer.sasl.jaas.config"
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    options = f'ssl.truststore.location="{tmp_path}/none" ssl.truststore.password="word" scope="x"'
    texts = {"sasl.enabled.mechanisms": "OAUTHBEARER", key: f"{module} {options};"}
    plain = config({**texts, "sasl.oauthbearer.jwks.endpoint.url": "http://a/keys"})
    jwks = SaslSettings.of_listener(plain, "INSIDE").jwks
    assert jwks is not None and dict(jwks.tls_texts).keys() == {"ssl.truststore.location", "ssl.truststore.password"}
    assert "word" not in repr(jwks)
    with pytest.raises(ConfigError, match=r"the option ssl.truststore.location: the file cannot be read"):
        config({**texts, "sasl.oauthbearer.jwks.endpoint.url": "https://a/keys"})


KERBEROS = {
    "sasl.enabled.mechanisms": "GSSAPI",
    "sasl.kerberos.service.name": "kafka",
    f"{PREFIX}gssapi.sasl.jaas.config": (
        'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab="file:/a/b.keytab"'
        ' principal="kafka/host@REALM";'
    ),
}


def test_identity_of_a_broker_in_kerberos() -> None:
    rules = {"sasl.kerberos.principal.to.local.rules": "DEFAULT", f"{PREFIX}{KERBEROS_KEY}": "RULE:[1:x$1], DEFAULT"}
    found = SaslSettings.of_listener(config({**KERBEROS, **rules}), "INSIDE").kerberos
    assert found is not None
    assert (found.login.principal, found.login.keytab) == ("kafka/host@REALM", "/a/b.keytab")
    assert [found.rules.name_of(name, "R") for name in ("bob@R", "bob/h@R")] == ["xbob", "bob"]
    assert found.jaas_key == f"{PREFIX}gssapi.sasl.jaas.config"


def of_kerberos(options: str) -> dict[str, str]:
    return {**KERBEROS, f"{PREFIX}gssapi.sasl.jaas.config": f"x.Krb5LoginModule required {options};"}


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (KERBEROS | {"sasl.kerberos.service.name": ""}, "sasl.kerberos.service.name=: is not set"),
        (
            of_kerberos("useKeyTab=true keyTab=a principal=b serviceName=other"),
            "differs from the option serviceName=other",
        ),
        (
            of_kerberos("useKeyTab=true keyTab=a"),
            "gssapi.sasl.jaas.config=.hidden.: Krb5LoginModule with useKeyTab=true",
        ),
        (of_kerberos("useKeyTab=true principal=a"), "needs the options keyTab and principal"),
        (of_kerberos("useTicketCache=true principal=a"), "needs useKeyTab=true with keyTab and principal: clients"),
        (of_kerberos("principal=a"), "needs useKeyTab=true with keyTab and principal, or for clients useTicketCache"),
        (
            KERBEROS | {f"{PREFIX}gssapi.sasl.jaas.config": "x.PlainLoginModule required;"},
            "GSSAPI needs Krb5LoginModule",
        ),
        (KERBEROS | {KERBEROS_KEY: "RULE:[1:$1]/U"}, f"{KERBEROS_KEY}=RULE:.*must be DEFAULT or RULE:"),
        (KERBEROS | {f"{PREFIX}{KERBEROS_KEY}": "default"}, f"{PREFIX}{KERBEROS_KEY}=default: must be"),
    ],
)
def test_refusals_of_kerberos(texts: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        config(texts)
