"""The settings of a topic as its logs use them: typed attributes of one object per topic.

A value comes from the topic itself, else from the first of the broker's synonyms that is set, else from the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gregor.config.broker import BrokerConfig, nearest_key_hint
from gregor.config.definitions import ConfigDef, ConfigError
from gregor.config.tables.topic_keys import TOPIC_KEYS
from gregor.config.validators import ConfigValue

# Broker keys count in hours or minutes where the topic's key counts in milliseconds.
_UNIT_MS = {"hours": 3_600_000, "minutes": 60_000}


class LogConfig:
    """The settings of one topic; attribute names are the topic keys with underscores instead of dots.

    The object is not modified: a changed topic gets a new one. ``segment_bytes`` includes ``internal.segment.bytes``.
    """

    __slots__ = (
        "cleanup_policy",
        "compression_gzip_level",
        "compression_lz4_level",
        "compression_type",
        "compression_zstd_level",
        "delete_retention_ms",
        "file_delete_delay_ms",
        "flush_messages",
        "flush_ms",
        "follower_replication_throttled_replicas",
        "gregor_deep_validation",
        "index_interval_bytes",
        "leader_replication_throttled_replicas",
        "max_compaction_lag_ms",
        "max_message_bytes",
        "message_timestamp_after_max_ms",
        "message_timestamp_before_max_ms",
        "message_timestamp_type",
        "min_cleanable_dirty_ratio",
        "min_compaction_lag_ms",
        "min_insync_replicas",
        "preallocate",
        "retention_bytes",
        "retention_ms",
        "segment_bytes",
        "segment_index_bytes",
        "segment_jitter_ms",
        "segment_ms",
        "unclean_leader_election_enable",
    )

    cleanup_policy: frozenset[str]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: list[str]
    gregor_deep_validation: bool
    index_interval_bytes: int
    leader_replication_throttled_replicas: list[str]
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool

    def __init__(self, values: Mapping[str, ConfigValue], base: LogConfig | None = None) -> None:
        """Set these typed values by topic key; the others are those of ``base``."""
        if base is not None:
            for name in self.__slots__:
                setattr(self, name, getattr(base, name))
        for key, value in values.items():
            self._set(key, value)

    @classmethod
    def defaults(cls, broker: BrokerConfig | None = None) -> LogConfig:
        """Return the settings of a topic that has none of its own on this broker."""
        return cls(
            {
                key: definition.default if broker is None else broker_default(definition, broker)
                for key, definition in TOPIC_KEYS.items()
            }
        )

    def with_overrides(self, overrides: Mapping[str, str]) -> LogConfig:
        """Return a copy with a topic's own values; raise ConfigError for an unknown key or an illegal value."""
        values = parse_overrides(overrides)
        # Set after segment.bytes, so that the order in `overrides` does not matter.
        if "internal.segment.bytes" in values:
            values["internal.segment.bytes"] = values.pop("internal.segment.bytes")
        config = LogConfig(values, self)
        low, high = config.min_compaction_lag_ms, config.max_compaction_lag_ms
        if low > high:
            raise ConfigError("min.compaction.lag.ms", low, f"must be at most max.compaction.lag.ms, {high}")
        return config

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """Return the age at which a segment is closed.

        Compaction does not read the active segment, so max.compaction.lag.ms limits the age in a compacted topic.
        """
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms

    def _set(self, key: str, value: ConfigValue) -> None:
        name = key.replace(".", "_")
        if name == "cleanup_policy" and isinstance(value, list):
            self.cleanup_policy = frozenset(value)
        elif name == "internal_segment_bytes":
            if isinstance(value, int):
                self.segment_bytes = value
        elif name in self.__slots__:
            setattr(self, name, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LogConfig):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # equal by value and, in principle, mutable

    def __repr__(self) -> str:
        return f"LogConfig({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


def parse_overrides(overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Return the typed values of a topic's own settings; raise ConfigError for an unknown key or an illegal value."""
    values: dict[str, ConfigValue] = {}
    for key, text in overrides.items():
        definition = TOPIC_KEYS.get(key)
        if definition is None:
            raise ConfigError(key, text, f"unknown topic setting{nearest_key_hint(key, tuple(TOPIC_KEYS))}")
        values[key] = definition.parse(text)
    if values.get("remote.storage.enable"):
        raise ConfigError("remote.storage.enable", "true", "must be false: this broker has no remote storage")
    return values


def broker_default(definition: ConfigDef, broker: BrokerConfig) -> Any:
    """Return the value that the broker's settings give a topic key, in the unit of the topic key."""
    known = [key for key in definition.broker_synonyms if key in broker]
    if not known:
        return definition.default
    key, value = broker.first_set(known)
    unit_ms = _UNIT_MS.get(key.rpartition(".")[2], 1)
    if unit_ms != 1 and isinstance(value, int):
        # Negative hours or minutes of retention mean: never.
        return -1 if value < 0 else value * unit_ms
    return value
