"""Settings of single groups (GROUP resources, KIP-848 and after), in the names, types and ranges of Apache Kafka 4.3.1.

Those of consumer groups act; those of streams and share groups, which gregor does not have, are checked, kept and
described.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from gregor.config.broker import BrokerConfig, nearest_key_hint
from gregor.config.definitions import ConfigDef, ConfigError
from gregor.config.tables.broker_keys import BROKER_KEYS
from gregor.config.tables.no_effect_keys import keys_without_effect
from gregor.config.validators import ANY_VALUE, ConfigValue, Form, Validator, at_least, one_of

_WITHOUT = {
    "streams": "gregor has no streams groups (KIP-1071)",
    "share": "gregor has no share groups (KIP-932)",
}
_KINDS = ("consumer", *_WITHOUT)
_HEARTBEAT_MS, _SESSION_MS = 5000, 45000
_DURATION = re.compile(r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")


def _is_reset(value: ConfigValue) -> bool:
    return value in ("latest", "earliest") or _DURATION.fullmatch(str(value)) is not None


_RESET = Form(_is_reset, "latest, earliest or by_duration:PnDTnHnMn.nS")


def _group(key: str, type: str, default: ConfigValue, help: str, validator: Validator = ANY_VALUE) -> ConfigDef:
    synonym = f"group.{key}"
    without = keys_without_effect().get(synonym)
    return ConfigDef(
        key,
        type,
        default,
        help,
        validator,
        no_effect=_WITHOUT.get(key.partition(".")[0], without.no_effect if without else ""),
        broker_synonyms=(synonym,) if without or synonym in BROKER_KEYS else (),
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


class Limit(NamedTuple):
    """A bound that the broker sets for the values of groups."""

    key: str
    value: Any
    is_lower: bool

    def allows(self, value: Any) -> bool:
        return bool(value >= self.value if self.is_lower else value <= self.value)

    def __str__(self) -> str:
        return f"at {'least' if self.is_lower else 'most'} {self.key}, {self.value}"


def check_group(texts: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raise ConfigError unless these settings of a group are legal and within this broker's limits for groups."""
    values: dict[str, Any] = {}
    for key, text in texts.items():
        values[key] = _parsed(key, text)
        for limit in _limits(key, broker):
            if not limit.allows(values[key]):
                raise ConfigError(key, values[key], f"must be {limit}")
    for kind in _KINDS:
        session_key, heartbeat_key = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        session, heartbeat = (
            values.get(key, _broker_value(f"group.{key}", broker)) for key in (session_key, heartbeat_key)
        )
        if session <= heartbeat:
            raise ConfigError(session_key, session, f"must be above the heartbeat interval, {heartbeat}")


def effective_group(texts: Mapping[str, str], broker: BrokerConfig) -> tuple[dict[str, Any], list[str]]:
    """Return the values of a group's own settings that are in effect on this broker, and its problems with the others.

    The texts are stored and may have been checked by a broker with other limits: a value outside of those of this
    broker is replaced by the limit (Kafka's GroupConfig.evaluate), and one that is not legal is left out."""
    values: dict[str, Any] = {}
    problems = []
    for key, text in texts.items():
        try:
            value: Any = _parsed(key, text)
        except ConfigError as error:
            problems.append(f"{error}; the setting is ignored")
            continue
        for limit in _limits(key, broker):
            if not limit.allows(value):
                problems.append(f"{key}={value}: must be {limit}, which is used instead")
                value = limit.value
        values[key] = value
    return values, problems


def _parsed(key: str, text: str) -> ConfigValue:
    definition = GROUP_KEYS.get(key)
    if definition is None:
        raise ConfigError(key, text, f"unknown group setting{nearest_key_hint(key, tuple(GROUP_KEYS))}")
    return definition.parse(text)


def limit_keys(key: str) -> tuple[str, str]:
    """Return the names of the broker's lower and upper limit for a group's setting; there may be no such settings."""
    kind, _, setting = key.partition(".")
    setting = {"num.standby.replicas": "standby.replicas"}.get(setting, setting)
    return f"group.{kind}.min.{setting}", f"group.{kind}.max.{setting}"


def _limits(key: str, broker: BrokerConfig) -> list[Limit]:
    lower_key = limit_keys(key)[0]
    return [
        Limit(limit_key, _broker_value(limit_key, broker), limit_key == lower_key)
        for limit_key in limit_keys(key)
        if limit_key in BROKER_KEYS or limit_key in keys_without_effect()
    ]


def _broker_value(key: str, broker: BrokerConfig) -> Any:
    return broker[key] if key in BROKER_KEYS else broker.value_without_effect(key)
