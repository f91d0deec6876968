"""The security of connections to ZooKeeper, from the settings of a broker."""

from __future__ import annotations

import pytest

from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.config.security.zookeeper import JAAS, zookeeper_security

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
LOGIN = f'{MODULE} required username="kafka" password="a-secret";'


def test_nothing_is_required_without_settings() -> None:
    security = zookeeper_security(BrokerConfig())
    assert (security.tls, security.user, security.set_acl) == (None, None, False)


def test_user_and_node_acls() -> None:
    security = zookeeper_security(BrokerConfig({JAAS: LOGIN, "zookeeper.set.acl": "true"}))
    assert (security.user, str(security.password), security.set_acl) == ("kafka", "a-secret", True)
    assert "a-secret" not in repr(security)


def test_tls_has_the_defaults_of_apache_kafka() -> None:
    texts = {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.location": "/ca.pem"}
    tls = zookeeper_security(BrokerConfig(texts)).tls
    assert tls is not None
    assert (tls.enabled_protocols, tls.protocol, tls.trust_store.location) == (("TLSv1.2",), "TLSv1.2", "/ca.pem")
    assert tls.endpoint_identification_algorithm == "HTTPS"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"zookeeper.set.acl": "true"}, "zookeeper.set.acl=true: the broker would be locked out"),
        ({JAAS: "org.example.Other required username=u password=p;"}, "must have one login module"),
        ({JAAS: f"{MODULE} required username=u;"}, "needs the options username and password"),
        ({JAAS: f"{MODULE} required"}, r"gregor.zookeeper.jaas.config=\(hidden\): .*semicolon"),
        ({"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.crl.enable": "true"}, "checks no revocation"),
    ],
)
def test_refusals_name_the_key_and_no_secret(texts: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        zookeeper_security(BrokerConfig(texts))
