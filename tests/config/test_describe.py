"""Settings as DescribeConfigs shows them, with the habits of Apache Kafka's own answers."""

from __future__ import annotations

import pytest

from gregor.config.broker import BrokerConfig
from gregor.config.definitions import LISTED, ConfigDef
from gregor.config.describe import (
    ConfigEntry,
    ConfigSynonym,
    describe_broker_defaults,
    describe_broker_key,
    describe_topic,
    describe_topic_key,
    described_broker_keys,
)
from gregor.config.tables.broker_keys import BROKER_KEYS
from gregor.config.tables.no_effect_keys import keys_without_effect
from gregor.config.tables.topic_keys import TOPIC_KEYS


def described(broker: BrokerConfig) -> list[ConfigEntry]:
    return [describe_broker_key(key, broker) for key in described_broker_keys(broker)]


def test_a_topic_setting_through_all_layers() -> None:
    broker = BrokerConfig({"message.max.bytes": "4"})
    broker.update_dynamic({"message.max.bytes": "2"}, {"message.max.bytes": "3"})
    entry = describe_topic_key("max.message.bytes", {"max.message.bytes": "1"}, broker)
    assert (entry.name, entry.value, entry.source, entry.type) == (
        "max.message.bytes",
        "1",
        "DYNAMIC_TOPIC_CONFIG",
        "int",
    )
    assert entry.synonyms == (
        ConfigSynonym("max.message.bytes", "1", "DYNAMIC_TOPIC_CONFIG"),
        ConfigSynonym("message.max.bytes", "2", "DYNAMIC_BROKER_CONFIG"),
        ConfigSynonym("message.max.bytes", "3", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ConfigSynonym("message.max.bytes", "4", "STATIC_BROKER_CONFIG"),
        ConfigSynonym("message.max.bytes", "1048588", "DEFAULT_CONFIG"),
    )
    assert (entry.source_id, entry.type_id, entry.sensitive, entry.read_only) == (1, 3, False, False)
    without = describe_topic_key("max.message.bytes", {}, broker)
    assert (without.value, without.source_id, without.synonyms) == ("2", 2, entry.synonyms[1:])


def test_the_list_of_synonyms_starts_at_the_first_name() -> None:
    # log.retention.ms is unset: what stands before it falls away, here everything.
    entry = describe_topic_key("retention.ms", {}, BrokerConfig({"log.retention.hours": "2"}))
    assert (entry.value, entry.source_id, entry.synonyms) == ("7200000", 5, ())
    entry = describe_topic_key("retention.ms", {}, BrokerConfig({"log.retention.ms": "9", "log.retention.hours": "2"}))
    assert (entry.value, entry.source_id) == ("9", 4)
    assert entry.synonyms == (
        ConfigSynonym("log.retention.ms", "9", "STATIC_BROKER_CONFIG"),
        ConfigSynonym("log.retention.hours", "2", "STATIC_BROKER_CONFIG"),
        ConfigSynonym("log.retention.hours", "168", "DEFAULT_CONFIG"),
    )


def test_a_topic_setting_without_a_broker_setting() -> None:
    entry = describe_topic_key("remote.storage.enable", {}, BrokerConfig())
    assert (entry.value, entry.source, entry.type_id, entry.synonyms) == ("false", "DEFAULT_CONFIG", 1, ())
    entry = describe_topic_key("local.retention.ms", {}, BrokerConfig())
    assert (entry.value, entry.synonyms) == (
        "-2",
        (ConfigSynonym("log.local.retention.ms", "-2", "DEFAULT_CONFIG"),),
    )


def test_all_settings_of_a_topic() -> None:
    broker = BrokerConfig()
    names = [entry.name for entry in describe_topic({}, broker)]
    assert names == [key for key, definition in TOPIC_KEYS.items() if definition.visibility == LISTED]
    assert "internal.segment.bytes" in [entry.name for entry in describe_topic({"internal.segment.bytes": "5"}, broker)]
    values = {entry.name: entry.value for entry in describe_topic({"cleanup.policy": "delete, compact"}, broker)}
    assert (values["cleanup.policy"], values["min.cleanable.dirty.ratio"]) == ("delete,compact", "0.5")
    assert values["flush.messages"] == "9223372036854775807"
    assert all(entry.documentation for entry in describe_topic({}, broker))


def test_a_broker_setting() -> None:
    broker = BrokerConfig({"log.cleaner.io.max.bytes.per.second": "1e9"})
    entry = describe_broker_key("log.cleaner.io.max.bytes.per.second", broker)
    assert (entry.value, entry.source_id, entry.type_id, entry.read_only) == ("1.0E9", 4, 6, False)
    assert entry.synonyms[-1].value == "1.7976931348623157E308"
    unset = describe_broker_key("broker.rack", broker)
    assert (unset.value, unset.source, unset.synonyms, unset.read_only) == (None, "DEFAULT_CONFIG", (), True)


def test_all_settings_of_a_broker() -> None:
    broker = BrokerConfig()
    names = [entry.name for entry in described(broker)]
    table = {**BROKER_KEYS, **keys_without_effect()}
    assert names == [key for key, definition in table.items() if definition.visibility == LISTED]
    internal = BrokerConfig({"log.initial.task.delay.ms": "0"})
    assert "log.initial.task.delay.ms" in [entry.name for entry in described(internal)]


def test_the_dynamic_settings_of_all_brokers() -> None:
    broker = BrokerConfig({"message.max.bytes": "4"})
    broker.update_dynamic({"log.retention.ms": "1"}, {"message.max.bytes": "3"})
    (entry,) = describe_broker_defaults(broker)
    assert (entry.name, entry.value, entry.source_id) == ("message.max.bytes", "3", 3)
    assert entry.synonyms == (ConfigSynonym("message.max.bytes", "3", "DYNAMIC_DEFAULT_BROKER_CONFIG"),)


def test_passwords_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BROKER_KEYS, "some.secret", ConfigDef("some.secret", "password", None, "A secret."))
    entry = describe_broker_key("some.secret", BrokerConfig({"some.secret": "hunter2"}))
    assert (entry.value, entry.sensitive, entry.type_id) == (None, True, 9)
    assert entry.synonyms == (ConfigSynonym("some.secret", None, "STATIC_BROKER_CONFIG"),)


def test_settings_without_effect_say_so() -> None:
    entry = describe_broker_key("remote.log.reader.threads", BrokerConfig({"remote.log.reader.threads": "4"}))
    assert (entry.value, entry.source_id, entry.read_only) == ("4", 4, False)
    assert (
        entry.documentation
        == "Threads that read from remote storage. Without effect here: gregor has no remote storage."
    )
    bad = describe_broker_key("remote.log.reader.threads", BrokerConfig({"remote.log.reader.threads": "many"}))
    assert bad.value == "many"


def test_retired_and_unknown_keys_are_described_where_they_are_set() -> None:
    given = {"zookeeper.session.timeout.ms": "5", "my.plugin.secret": "x", "listener.name.a.ssl.key.password": "y"}
    found = {entry.name: entry for entry in described(BrokerConfig(given))}
    assert found["zookeeper.session.timeout.ms"].value == "5"
    unknown = found["my.plugin.secret"]
    assert (unknown.value, unknown.sensitive, unknown.read_only, unknown.type_id) == (None, True, True, 0)
    assert unknown.synonyms == (ConfigSynonym("my.plugin.secret", None, "STATIC_BROKER_CONFIG"),)
    hidden = found["listener.name.a.ssl.key.password"]
    assert (hidden.value, hidden.sensitive, hidden.type_id) == (None, True, 9)


def test_a_listeners_own_setting() -> None:
    broker = BrokerConfig({"max.connections": "9"})
    key = "listener.name.plaintext.max.connections"
    broker.update_dynamic({key: "7"}, {key: "8"})
    entry = describe_broker_key(key, broker)
    assert (entry.name, entry.value, entry.source_id, entry.type_id, entry.read_only) == (key, "7", 2, 3, True)
    assert [(one.name, one.value) for one in entry.synonyms] == [
        (key, "7"),
        (key, "8"),
        ("max.connections", "9"),
        ("max.connections", "2147483647"),
    ]
    (default,) = describe_broker_defaults(broker)
    assert (default.value, default.synonyms) == ("8", (ConfigSynonym(key, "8", "DYNAMIC_DEFAULT_BROKER_CONFIG"),))


@pytest.mark.parametrize(("given", "shown"), [({"node.id": "3"}, "3"), ({"broker.id": "4"}, "4"), ({}, "-1")])
def test_the_brokers_number_has_two_names(given: dict[str, str], shown: str) -> None:
    broker = BrokerConfig(given)
    for key in ("node.id", "broker.id"):
        entry = describe_broker_key(key, broker)
        assert (entry.value, entry.source) == (shown, "STATIC_BROKER_CONFIG" if given else "DEFAULT_CONFIG")


def test_illegal_value_is_described_as_it_was_written() -> None:
    entry = describe_topic_key("retention.ms", {"retention.ms": "soon"}, BrokerConfig())
    assert (entry.value, entry.source) == ("soon", "DYNAMIC_TOPIC_CONFIG")
