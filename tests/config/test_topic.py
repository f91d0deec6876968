"""A topic's settings: those inherited from the broker, those set by the topic itself, and those refused."""

from __future__ import annotations

import pytest

from gregor.config.broker import BrokerConfig
from gregor.config.definitions import LONG_MAX, ConfigError
from gregor.config.tables.topic_keys import TOPIC_KEYS
from gregor.config.topic import LogConfig, broker_default, parse_overrides

# Known to Kafka's topics, but nothing a log does here; internal.segment.bytes goes into segment_bytes.
NOT_ATTRIBUTES = {
    "internal.segment.bytes",
    "local.retention.bytes",
    "local.retention.ms",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
}


def test_defaults_are_those_of_the_table() -> None:
    config = LogConfig.defaults()
    assert config == LogConfig.defaults(BrokerConfig())
    for key, definition in TOPIC_KEYS.items():
        if key not in NOT_ATTRIBUTES:
            value = getattr(config, key.replace(".", "_"))
            assert value == (frozenset(["delete"]) if key == "cleanup.policy" else definition.default)
    assert {name.replace("_", ".") for name in LogConfig.__slots__} == set(TOPIC_KEYS) - NOT_ATTRIBUTES


@pytest.mark.parametrize(
    ("broker", "attribute", "value"),
    [
        ({"log.retention.hours": "2"}, "retention_ms", 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, "retention_ms", 180_000),
        (
            {"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"},
            "retention_ms",
            4,
        ),
        ({"log.retention.hours": "-1"}, "retention_ms", -1),
        ({"log.retention.minutes": "-1"}, "retention_ms", -1),
        ({"log.retention.ms": "-1"}, "retention_ms", -1),
        ({"log.roll.hours": "1"}, "segment_ms", 3_600_000),
        ({"log.roll.ms": "5", "log.roll.hours": "1"}, "segment_ms", 5),
        ({"log.roll.jitter.hours": "1"}, "segment_jitter_ms", 3_600_000),
        ({"log.flush.interval.ms": "50"}, "flush_ms", 50),
        ({"log.flush.scheduler.interval.ms": "60"}, "flush_ms", 60),
        ({"message.max.bytes": "77"}, "max_message_bytes", 77),
        ({"log.cleanup.policy": "compact,delete"}, "cleanup_policy", frozenset(["compact", "delete"])),
        ({"log.index.size.max.bytes": "1000"}, "segment_index_bytes", 1000),
        ({"log.segment.delete.delay.ms": "9"}, "file_delete_delay_ms", 9),
        ({"compression.type": "zstd"}, "compression_type", "zstd"),
        ({"unclean.leader.election.enable": "true"}, "unclean_leader_election_enable", True),
        ({"log.cleaner.min.cleanable.ratio": "0.25"}, "min_cleanable_dirty_ratio", 0.25),
    ],
)
def test_values_that_come_from_the_broker(broker: dict[str, str], attribute: str, value: object) -> None:
    assert getattr(LogConfig.defaults(BrokerConfig(broker)), attribute) == value


def test_dynamic_broker_settings_reach_topics() -> None:
    broker = BrokerConfig({"log.retention.hours": "2"})
    broker.update_dynamic({}, {"log.retention.ms": "100"})
    assert LogConfig.defaults(broker).retention_ms == 100


def test_overrides() -> None:
    base = LogConfig.defaults()
    config = base.with_overrides(
        {"retention.ms": "-1", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "preallocate": "true"}
    )
    assert (config.retention_ms, config.cleanup_policy, config.preallocate) == (-1, frozenset(["compact"]), True)
    assert (config.compact, config.delete, config.min_cleanable_dirty_ratio) == (True, False, 0.1)
    assert config.segment_bytes == base.segment_bytes
    assert base == LogConfig.defaults() != config
    assert "retention_ms=-1" in repr(config)
    assert base != "something else"


def test_an_empty_cleanup_policy_keeps_everything() -> None:
    config = LogConfig.defaults().with_overrides({"cleanup.policy": ""})
    assert (config.compact, config.delete) == (False, False)


def test_compaction_bounds_the_age_of_a_segment() -> None:
    overrides = {"segment.ms": "1000", "max.compaction.lag.ms": "10"}
    assert LogConfig.defaults().with_overrides(overrides).max_segment_ms == 1000
    assert LogConfig.defaults().with_overrides({**overrides, "cleanup.policy": "compact"}).max_segment_ms == 10


@pytest.mark.parametrize(
    "keys", [("segment.bytes", "internal.segment.bytes"), ("internal.segment.bytes", "segment.bytes")]
)
def test_internal_segment_bytes_wins(keys: tuple[str, str]) -> None:
    values = {"segment.bytes": "2000000", "internal.segment.bytes": "100"}
    assert LogConfig.defaults().with_overrides({key: values[key] for key in keys}).segment_bytes == 100


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retentoin.ms": "1"}, "retentoin.ms=1: unknown topic setting; did you mean retention.ms?"),
        ({"log.retention.ms": "1"}, "unknown topic setting"),
        ({"retention.ms": "-2"}, "retention.ms=-2: must be a whole number (long), at least -1"),
        ({"segment.bytes": "14"}, "segment.bytes=14: must be a whole number (int), at least 1048576"),
        ({"cleanup.policy": "COMPACT"}, "cleanup.policy=COMPACT: must be a comma-separated list of compact, delete"),
        ({"compression.type": "none"}, "one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ({"compression.gzip.level": "0"}, "from 1 to 9, or -1"),
        ({"message.timestamp.type": "createtime"}, "one of CreateTime, LogAppendTime"),
        ({"min.insync.replicas": "0"}, "at least 1"),
        ({"remote.storage.enable": "true"}, "no remote storage"),
        ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, "at most max.compaction.lag.ms, 5"),
    ],
)
def test_refusals(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LogConfig.defaults().with_overrides(overrides)
    assert message in str(caught.value)


def test_limits_between_keys_include_the_brokers_values() -> None:
    base = LogConfig.defaults(BrokerConfig({"log.cleaner.max.compaction.lag.ms": "5"}))
    with pytest.raises(ConfigError, match="at most max"):
        base.with_overrides({"min.compaction.lag.ms": "6"})


def test_parse_overrides_gives_typed_values() -> None:
    assert parse_overrides(
        {"retention.ms": "5", "cleanup.policy": "delete,compact", "remote.storage.enable": "false"}
    ) == {
        "retention.ms": 5,
        "cleanup.policy": ["delete", "compact"],
        "remote.storage.enable": False,
    }


def test_broker_default_of_keys_that_no_broker_key_stands_for() -> None:
    broker = BrokerConfig()
    assert broker_default(TOPIC_KEYS["remote.storage.enable"], broker) is False
    assert broker_default(TOPIC_KEYS["local.retention.ms"], broker) == -2
    assert broker_default(TOPIC_KEYS["flush.messages"], broker) == LONG_MAX
