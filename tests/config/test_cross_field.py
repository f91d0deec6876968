"""Settings that bound each other, and how far a running broker's may change at once."""

from __future__ import annotations

import pytest

from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError


@pytest.mark.parametrize("text", ["nonsense", "127.0.0.1:x", "127.0.0.1:-1", ":5"])
def test_overrides_are_pairs(text: str) -> None:
    with pytest.raises(ConfigError, match="host:count"):
        BrokerConfig({"max.connections.per.ip.overrides": text})


def test_the_dedupe_buffer_has_a_share_for_each_thread() -> None:
    BrokerConfig({"log.cleaner.dedupe.buffer.size": "3000000", "log.cleaner.threads": "2"})
    with pytest.raises(ConfigError, match="each cleaner thread"):
        BrokerConfig({"log.cleaner.dedupe.buffer.size": "3000000", "log.cleaner.threads": "3"})


@pytest.mark.parametrize(
    ("key", "text", "taken"),
    [
        ("num.io.threads", "4", True),
        ("num.io.threads", "16", True),
        ("num.io.threads", "3", False),
        ("num.io.threads", "17", False),
        ("log.cleaner.threads", "3", False),
        ("max.connection.creation.rate", "0", False),
        ("max.connection.creation.rate", "1", True),
        ("listener.name.plaintext.max.connection.creation.rate", "0", False),
        ("max.connections", "0", False),
        ("max.connections", "1", True),
        ("listener.name.plaintext.max.connections", "0", False),
        ("listeners", "PLAINTEXT://localhost:1,OTHER://localhost:2", False),
        ("listeners", "PLAINTEXT://localhost:1", True),
    ],
)
def test_running_broker_refuses_large_changes(key: str, text: str, taken: bool) -> None:
    broker = BrokerConfig()
    if taken:
        broker.check_dynamic({key: text}, {})
    else:
        with pytest.raises(ConfigError, match=key):
            broker.check_dynamic({key: text}, {})
    assert broker.dynamic_texts == {}


def test_an_open_listener_keeps_its_protocol() -> None:
    with pytest.raises(ConfigError, match="the listener PLAINTEXT is open and keeps its protocol, PLAINTEXT"):
        BrokerConfig().check_dynamic({"listener.security.protocol.map": "PLAINTEXT:SSL"}, {})


@pytest.mark.parametrize(
    ("texts", "cause"),
    [
        ({"group.coordinator.rebalance.protocols": "consumer"}, "must name classic"),
        ({"group.coordinator.rebalance.protocols": "classic,other"}, "classic, consumer, share, streams"),
        ({"group.consumer.session.timeout.ms": "44999"}, "at least group.consumer.min.session.timeout.ms, 45000"),
        ({"group.consumer.session.timeout.ms": "60001"}, "at most group.consumer.max.session.timeout.ms, 60000"),
        ({"group.consumer.heartbeat.interval.ms": "4999"}, "at least group.consumer.min.heartbeat.interval.ms"),
        ({"group.consumer.max.heartbeat.interval.ms": "4999"}, "at least group.consumer.min.heartbeat.interval.ms"),
        (
            {"group.consumer.heartbeat.interval.ms": "45000", "group.consumer.max.heartbeat.interval.ms": "45000"},
            "below group.consumer.session.timeout.ms, 45000",
        ),
        ({"group.consumer.assignors": ""}, "uniform, range"),
        ({"group.consumer.assignors": "uniform,com.example.Assignor"}, "loads no Java classes"),
        ({"group.consumer.migration.policy": "both"}, "bidirectional, disabled, downgrade, upgrade"),
    ],
)
def test_settings_of_the_consumer_protocol_that_contradict_each_other(texts: dict[str, str], cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        BrokerConfig(texts)


def test_settings_of_the_consumer_protocol() -> None:
    texts = {
        "group.coordinator.rebalance.protocols": "consumer, classic",
        "group.consumer.assignors": "org.apache.kafka.coordinator.group.assignor.RangeAssignor,uniform",
        "group.consumer.migration.policy": "Upgrade",
    }
    config = BrokerConfig(texts)
    assert config["group.coordinator.rebalance.protocols"] == ["consumer", "classic"]
    assert config["group.consumer.migration.policy"] == "Upgrade"
