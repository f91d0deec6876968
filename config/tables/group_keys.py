"""Settings of single groups (GROUP resources, KIP-848 and after), in the names, types and ranges of Apache Kafka 4.3.1.

They are checked, kept and described; none has an effect yet, as they belong to newer protocols than the classic one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gregor.config.broker import BrokerConfig, nearest_key_hint
from gregor.config.definitions import ConfigDef, ConfigError
from gregor.config.tables.no_effect_keys import keys_without_effect
from gregor.config.validators import ANY_VALUE, ConfigValue, Form, Validator, at_least, one_of

_WITHOUT = {
    "consumer": "gregor serves classic groups only (KIP-848 is not built)",
    "streams": "gregor has no streams groups (KIP-1071)",
    "share": "gregor has no share groups (KIP-932)",
}
_HEARTBEAT_MS, _SESSION_MS = 5000, 45000
_DURATION = re.compile(r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")


def _is_reset(value: ConfigValue) -> bool:
    return value in ("latest", "earliest") or _DURATION.fullmatch(str(value)) is not None


_RESET = Form(_is_reset, "latest, earliest or by_duration:PnDTnHnMn.nS")


def _group(key: str, type: str, default: ConfigValue, help: str, validator: Validator = ANY_VALUE) -> ConfigDef:
    synonym = f"group.{key}"
    return ConfigDef(
        key,
        type,
        default,
        help,
        validator,
        no_effect=_WITHOUT[key.partition(".")[0]],
        broker_synonyms=(synonym,) if synonym in keys_without_effect() else (),
    )


def _timing(kind: str) -> tuple[ConfigDef, ...]:
    """Return the settings that each of the three protocols has."""
    return (
        _group(f"{kind}.assignment.interval.ms", "int", 1000, "Shortest time between two assignments.", at_least(0)),
        _group(
            f"{kind}.heartbeat.interval.ms", "int", _HEARTBEAT_MS, "How often a member sends a heartbeat.", at_least(1)
        ),
        _group(
            f"{kind}.session.timeout.ms",
            "int",
            _SESSION_MS,
            "Time without a heartbeat after which a member is removed.",
            at_least(1),
        ),
    )


_DEFINITIONS = (
    *_timing("consumer"),
    *_timing("streams"),
    _group(
        "streams.initial.rebalance.delay.ms", "int", 3000, "How long a new group waits for more members.", at_least(0)
    ),
    _group("streams.num.standby.replicas", "int", 0, "Standby copies of each task.", at_least(0)),
    *_timing("share"),
    _group(
        "share.auto.offset.reset",
        "string",
        "latest",
        "Offset at which a new group starts: latest, earliest, or a time before now (by_duration:PnDTnHnMn.nS).",
        _RESET,
    ),
    _group("share.delivery.count.limit", "int", 5, "Deliveries of a record, at most.", at_least(2)),
    _group(
        "share.isolation.level",
        "string",
        "read_uncommitted",
        "Whether records of transactions are delivered before they are committed.",
        one_of("read_committed", "read_uncommitted"),
    ),
    _group(
        "share.partition.max.record.locks",
        "int",
        2000,
        "Records of a partition that are delivered and not acknowledged yet, at most.",
        at_least(100),
    ),
    _group(
        "share.record.lock.duration.ms",
        "int",
        30000,
        "How long a delivered record is locked for its member.",
        at_least(1000),
    ),
    _group("share.renew.acknowledge.enable", "boolean", True, "Whether a member may renew the lock of a record."),
)

GROUP_KEYS: dict[str, ConfigDef] = {definition.key: definition for definition in _DEFINITIONS}


def check_group(texts: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raise ConfigError unless these settings of a group are legal and within this broker's limits for groups."""
    values: dict[str, Any] = {}
    for key, text in texts.items():
        definition = GROUP_KEYS.get(key)
        if definition is None:
            raise ConfigError(key, text, f"unknown group setting{nearest_key_hint(key, tuple(GROUP_KEYS))}")
        values[key] = definition.parse(text)
        _check_limits(key, values[key], broker)
    for kind in _WITHOUT:
        session: Any = values.get(f"{kind}.session.timeout.ms", _SESSION_MS)
        heartbeat: Any = values.get(f"{kind}.heartbeat.interval.ms", _HEARTBEAT_MS)
        if session <= heartbeat:
            raise ConfigError(
                f"{kind}.session.timeout.ms", session, f"must be above the heartbeat interval, {heartbeat}"
            )


def _check_limits(key: str, value: Any, broker: BrokerConfig) -> None:
    """Check a value against the broker's group.<kind>.min.<setting> and .max.<setting>, where they exist."""
    kind, _, setting = key.partition(".")
    setting = {"num.standby.replicas": "standby.replicas"}.get(setting, setting)
    for bound in ("min", "max"):
        limit_key = f"group.{kind}.{bound}.{setting}"
        if limit_key not in keys_without_effect():
            continue
        limit = broker.value_without_effect(limit_key)
        if value < limit if bound == "min" else value > limit:
            words = "at least" if bound == "min" else "at most"
            raise ConfigError(key, value, f"must be {words} {limit_key}, {limit}")
