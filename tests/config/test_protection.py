"""A broker whose settings require protection never starts unprotected without notice."""

from __future__ import annotations

import pytest

from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.config.protection import ALLOW_UNPROTECTED, REFUSED_KEYS, WARNED_KEYS
from gregor.config.tables.authorizer_keys import AUTHORIZER_CLASSES, parse_super_users
from gregor.config.tables.known_keys import NO_EFFECT_KEYS
from gregor.config.tables.no_effect_keys import keys_without_effect

REFUSED = {
    "authorizer.class.name": "com.example.Authorizer",
    "authorizer.zookeeper.url": "zk:2181",
}
WARNED = {
    "alter.config.policy.class.name": "com.example.Policy",
    "client.quota.callback.class": "com.example.Quotas",
    "create.topic.policy.class.name": "com.example.Policy",
    "delegation.token.master.key": "abc",
    "principal.builder.class": "com.example.Principals",
    "security.providers": "com.example.Provider",
    "ssl.trustmanager.algorithm": "SunX509",
}


@pytest.mark.parametrize(("key", "text"), REFUSED.items())
def test_a_broker_that_would_be_open_is_refused_with_cause_and_remedy(key: str, text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig({key: f" {text} "})
    remedy = f"remove {key}, or set {ALLOW_UNPROTECTED}=true to start without this protection"
    assert str(refusal.value) == f"{key}={text}: {REFUSED_KEYS[key]}; {remedy}"


@pytest.mark.parametrize(("key", "text"), REFUSED.items())
def test_one_key_allows_it_and_leaves_a_warning(key: str, text: str) -> None:
    config = BrokerConfig({key: text, ALLOW_UNPROTECTED: "true"})
    assert config.warnings == [f"UNPROTECTED: {key}={text} has no effect: {REFUSED_KEYS[key]}"]
    assert config.notes == []
    assert config[ALLOW_UNPROTECTED] is True


def test_the_key_that_allows_must_be_true_or_false() -> None:
    with pytest.raises(ConfigError, match=r"gregor\.allow\.unprotected=yes: must be true or false"):
        BrokerConfig({ALLOW_UNPROTECTED: "yes"})


@pytest.mark.parametrize("name", AUTHORIZER_CLASSES)
def test_the_class_names_of_apache_kafka_select_the_built_in_authorizer(name: str) -> None:
    config = BrokerConfig({"authorizer.class.name": f" {name} ", "super.users": "User:a; User:CN=b,O=c"})
    assert (config["authorizer.class.name"], config.warnings, config.notes) == (name, [], [])


def test_super_users_are_principals() -> None:
    assert parse_super_users("User:a; User:CN=b,O=c;") == ["User:a", "User:CN=b,O=c"]
    with pytest.raises(ConfigError, match="super.users=User:a,b;c: 'c' has no colon between type and name"):
        BrokerConfig({"super.users": "User:a,b;c"})


@pytest.mark.parametrize(("key", "text"), WARNED.items())
def test_a_missing_limit_or_rule_is_a_warning_that_stands_first(key: str, text: str) -> None:
    config = BrokerConfig({"no.such.key": "1", key: text})
    shown = "(hidden)" if key.startswith("delegation.") else text
    assert config.warnings[0] == f"UNPROTECTED: {key}={shown} has no effect: {WARNED_KEYS[key]}"
    assert len(config.warnings) == 2
    assert config.notes == []


@pytest.mark.parametrize("base", ["principal.builder.class", "security.providers", "ssl.trustmanager.algorithm"])
def test_the_setting_of_a_single_listener_is_a_warning_as_that_of_all(base: str) -> None:
    key = f"listener.name.plaintext.{base}"
    config = BrokerConfig({key: WARNED[base]})
    assert config.warnings == [f"UNPROTECTED: {key}={WARNED[base]} has no effect: {WARNED_KEYS[base]}"]
    assert config.notes == []


@pytest.mark.parametrize("key", ["create.topic.policy.class.name", "authorizer.class.name"])
def test_a_setting_that_no_listener_can_have_requests_nothing_for_one(key: str) -> None:
    config = BrokerConfig({f"listener.name.plaintext.{key}": "com.example.Class"})
    assert config.warnings == []


@pytest.mark.parametrize("key", sorted({**REFUSED, **WARNED}))
def test_an_empty_text_asks_for_nothing(key: str) -> None:
    assert BrokerConfig({key: ""}).warnings == []


def test_values_that_ask_for_nothing() -> None:
    texts = {"quota.producer.default": "9223372036854775807"}
    config = BrokerConfig(texts)
    assert config.warnings == []
    assert config.notes == []


def test_what_java_does_without_the_setting_asks_for_nothing() -> None:
    texts = {
        "ssl.trustmanager.algorithm": "PKIX",
        "listener.name.plaintext.ssl.trustmanager.algorithm": "PKIX",
        "principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    }
    assert BrokerConfig(texts).warnings == []


def test_each_of_these_settings_is_one_without_effect() -> None:
    without_effect = {*NO_EFFECT_KEYS, *keys_without_effect(), "authorizer.class.name"}
    assert sorted({*REFUSED_KEYS, *WARNED_KEYS} - without_effect) == []
    assert (set(REFUSED), set(WARNED)) == (set(REFUSED_KEYS), set(WARNED_KEYS))
