"""Settings of security without an effect: by the security protocol, and by the SASL mechanism."""

from __future__ import annotations

import pytest

from gregor.spark_jobs.client.known_settings import SECURITY
from gregor.spark_jobs.client.security_settings import reasons_of_security

SSL = {name for name in SECURITY if name.startswith("ssl.")}
SASL = {name for name in SECURITY if name.startswith("sasl.")}
JAVA_TLS = {
    *("ssl.keymanager.algorithm", "ssl.provider", "ssl.secure.random.implementation", "ssl.trustmanager.algorithm")
}
CLASSES = {"security.providers"}
"""Refused where the security protocol is not PLAINTEXT."""
KERBEROS = {name for name in SECURITY if name.startswith("sasl.kerberos.")}
LOGIN = {name for name in SECURITY if name.startswith("sasl.login.")}
TOKENS = {name for name in SECURITY if name.startswith("sasl.oauthbearer.")} | LOGIN
TOKEN_CLASSES = {name for name in TOKENS if name.endswith(".class")}
CREDENTIALS = {
    *("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret"),
    *("sasl.oauthbearer.header.urlencode", "sasl.oauthbearer.scope", "sasl.oauthbearer.token.endpoint.url"),
}


def unused(**texts: str) -> set[str]:
    """Return the settings without an effect, if each setting is set, and those of the arguments to a text."""
    given = dict.fromkeys(SECURITY, "7") | {name.replace("_", "."): text for name, text in texts.items()}
    return set(reasons_of_security(given))


@pytest.mark.parametrize(
    ("protocol", "mechanism", "names"),
    [
        ("", "PLAIN", SSL | SASL | CLASSES),
        ("plaintext", "PLAIN", SSL | SASL | CLASSES),
        ("SSL", "PLAIN", SASL | JAVA_TLS | CLASSES),
        ("SASL_PLAINTEXT", "PLAIN", SSL | KERBEROS | TOKENS | CLASSES),
        ("SASL_SSL", "SCRAM-SHA-512", JAVA_TLS | KERBEROS | TOKENS | CLASSES),
        ("SASL_SSL", "GSSAPI", JAVA_TLS | KERBEROS - {"sasl.kerberos.service.name"} | TOKENS | CLASSES),
        ("SASL_SSL", "", JAVA_TLS | KERBEROS - {"sasl.kerberos.service.name"} | TOKENS | CLASSES),
        ("SASL_SSL", "OAUTHBEARER", JAVA_TLS | KERBEROS | (TOKENS - CREDENTIALS - LOGIN - TOKEN_CLASSES) | CLASSES),
    ],
)
def test_settings_without_an_effect(protocol: str, mechanism: str, names: set[str]) -> None:
    assert unused(security_protocol=protocol, sasl_mechanism=mechanism) == names


def test_fetch_of_tokens_has_no_effect_without_its_address() -> None:
    found = unused(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_endpoint_url="")
    assert found == JAVA_TLS | KERBEROS | (TOKENS - TOKEN_CLASSES) | CLASSES


def test_reasons_name_the_remedy_and_no_value() -> None:
    assert reasons_of_security({"ssl.truststore.location": "/a", "sasl.jaas.config": "secret", "ssl.foo": "1"}) == {
        "ssl.truststore.location": "connections have no TLS, as kafka.security.protocol is PLAINTEXT by default; set "
        "it to SSL or SASL_SSL",
        "sasl.jaas.config": "connections have no SASL, as kafka.security.protocol is PLAINTEXT by default; set it to "
        "SASL_PLAINTEXT or SASL_SSL",
    }
    assert reasons_of_security({"security.protocol": "SSL", "sasl.jaas.config": "secret"}) == {
        "sasl.jaas.config": "connections have no SASL, as kafka.security.protocol is SSL; set it to SASL_SSL"
    }
    kerberos = {"security.protocol": "SASL_SSL", "sasl.login.read.timeout.ms": "5"}
    assert reasons_of_security(kerberos) == {
        "sasl.login.read.timeout.ms": "it is a setting of OAUTHBEARER, and kafka.sasl.mechanism is GSSAPI by default"
    }
