"""Settings as DescribeConfigs returns them: text, type, source, and the synonyms that a value was chosen from.

The module follows Apache Kafka's ``ConfigHelper``, also in two details that tools rely on: the list of synonyms begins
with the entry of the key's own (first) name, so that a topic's ``retention.ms`` that comes from
``log.retention.hours`` has no synonyms and the source DEFAULT_CONFIG; and a key without a value has no entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from gregor.config.broker import (
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    STATIC_BROKER_CONFIG,
    BrokerConfig,
    broker_definition,
)
from gregor.config.definitions import LISTED, READ_ONLY, ConfigDef, ConfigError
from gregor.config.tables.broker_keys import BROKER_KEYS, broker_synonyms
from gregor.config.tables.broker_sasl_keys import listener_key
from gregor.config.tables.no_effect_keys import keys_without_effect
from gregor.config.tables.topic_keys import TOPIC_KEYS
from gregor.config.topic import broker_default

DYNAMIC_TOPIC_CONFIG = "DYNAMIC_TOPIC_CONFIG"
DYNAMIC_BROKER_LOGGER_CONFIG = "DYNAMIC_BROKER_LOGGER_CONFIG"
DYNAMIC_CLIENT_METRICS_CONFIG = "DYNAMIC_CLIENT_METRICS_CONFIG"
DYNAMIC_GROUP_CONFIG = "DYNAMIC_GROUP_CONFIG"
UNKNOWN = "unknown"

_NUMBER_KEYS = ("node.id", "broker.id")

# Numbers of the wire format (``DescribeConfigsResponse.ConfigSource`` and ``.ConfigType``).
SOURCE_IDS = {
    DYNAMIC_TOPIC_CONFIG: 1,
    DYNAMIC_BROKER_CONFIG: 2,
    DYNAMIC_DEFAULT_BROKER_CONFIG: 3,
    STATIC_BROKER_CONFIG: 4,
    DEFAULT_CONFIG: 5,
    DYNAMIC_BROKER_LOGGER_CONFIG: 6,
    DYNAMIC_CLIENT_METRICS_CONFIG: 7,
    DYNAMIC_GROUP_CONFIG: 8,
}
TYPE_IDS = {
    UNKNOWN: 0,
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: str


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    source: str
    type: str
    sensitive: bool
    read_only: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str

    @property
    def source_id(self) -> int:
        return SOURCE_IDS[self.source]

    @property
    def type_id(self) -> int:
        return TYPE_IDS[self.type]


def describe_topic_key(key: str, overrides: Mapping[str, str], broker: BrokerConfig) -> ConfigEntry:
    """Describe one topic setting; ``overrides`` are the topic's own texts. Raise KeyError for an unknown key."""
    definition = TOPIC_KEYS[key]
    own = overrides.get(key)
    value = text_of(definition, own) if own is not None else definition.format(broker_default(definition, broker))
    first = definition.broker_synonyms[:1]
    synonyms = broker_layers(first[0], broker) if first and first[0] in BROKER_KEYS else []
    if own is not None:
        synonyms.insert(0, ConfigSynonym(key, value, DYNAMIC_TOPIC_CONFIG))
    return config_entry(definition, value, synonyms, read_only=False)


def describe_topic(overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """Describe all settings of a topic, except internal ones that are not set."""
    return [
        describe_topic_key(key, overrides, broker)
        for key, definition in TOPIC_KEYS.items()
        if definition.visibility == LISTED or key in overrides
    ]


def describe_broker_key(key: str, broker: BrokerConfig) -> ConfigEntry:
    """Describe a broker setting, or that of a single listener; an unknown key is described as a read-only secret."""
    definition = broker_definition(key)
    if definition is None:
        return ConfigEntry(
            key, None, STATIC_BROKER_CONFIG, UNKNOWN, True, True, tuple(broker_layers(key, broker, hidden=True)), ""
        )
    # As in Apache Kafka, settings of a single listener are described as read-only, although they can be altered.
    read_only = definition.dynamic == READ_ONLY or bool(listener_key(key))
    return config_entry(
        definition, _broker_text(key, definition, broker), broker_layers(key, broker), read_only=read_only, name=key
    )


def described_broker_keys(broker: BrokerConfig) -> list[str]:
    """Return the keys to describe: all listed settings, and internal, retired and unknown ones that are set."""
    table = {**BROKER_KEYS, **keys_without_effect()}
    listed = [key for key, definition in table.items() if definition.visibility == LISTED]
    given = (*broker.static_texts, *broker.unknown_texts, *broker.dynamic_default_texts, *broker.dynamic_texts)
    return list(dict.fromkeys((*listed, *given)))


def describe_broker_defaults(broker: BrokerConfig) -> list[ConfigEntry]:
    """Describe the dynamic settings of all brokers (a BROKER resource without a name)."""
    entries = []
    for key, text in broker.dynamic_default_texts.items():
        definition = broker_definition(key)
        if definition is not None:
            synonyms = [one for one in broker_layers(key, broker) if one.source == DYNAMIC_DEFAULT_BROKER_CONFIG]
            entries.append(config_entry(definition, text, synonyms, read_only=bool(listener_key(key)), name=key))
    return entries


def _broker_text(key: str, definition: ConfigDef, broker: BrokerConfig) -> str | None:
    """Return the text of the value in effect; for an unreadable value of a setting without effect, the text given."""
    if key in _NUMBER_KEYS:
        return _static_texts((key,), broker).get(key, "-1")
    if key in broker:
        return definition.format(broker[key])
    for texts in (broker.dynamic_texts, broker.dynamic_default_texts, broker.static_texts):
        if key in texts:
            return text_of(definition, texts[key])
    return definition.format(definition.default)


def text_of(definition: ConfigDef, text: str) -> str | None:
    """Return a value in its normal form, or an illegal text as it is (it was written directly to ZooKeeper)."""
    try:
        return definition.format(definition.parse(text))
    except ConfigError:
        return text


def broker_layers(key: str, broker: BrokerConfig, *, hidden: bool = False) -> list[ConfigSynonym]:
    names = (key, base) if (base := listener_key(key)) else broker_synonyms(key)
    found: list[ConfigSynonym] = []
    for texts, source in (
        (broker.dynamic_texts, DYNAMIC_BROKER_CONFIG),
        (broker.dynamic_default_texts, DYNAMIC_DEFAULT_BROKER_CONFIG),
        (_static_texts(names, broker), STATIC_BROKER_CONFIG),
    ):
        if texts:
            found += [ConfigSynonym(name, None if hidden else texts[name], source) for name in names if name in texts]
    for name in names:
        if (text := _default_text(name)) is not None:
            found.append(ConfigSynonym(name, text, DEFAULT_CONFIG))
    while found and found[0].name != key:
        found.pop(0)
    return found


def _static_texts(names: tuple[str, ...], broker: BrokerConfig) -> dict[str, str]:
    """Return the static texts of these keys; node.id and broker.id each stand for the other."""
    if names[0] in _NUMBER_KEYS:
        number = broker.static_texts.get("node.id", broker.static_texts.get("broker.id"))
        return {} if number is None else {names[0]: number}
    given = (broker.static_texts, broker.unknown_texts)
    return {name: texts[name] for texts in given for name in names if name in texts}


@cache
def _default_text(name: str) -> str | None:
    definition = None if listener_key(name) else broker_definition(name)
    return None if definition is None else definition.format(definition.default)


def config_entry(
    definition: ConfigDef, value: str | None, synonyms: list[ConfigSynonym], *, read_only: bool, name: str = ""
) -> ConfigEntry:
    if definition.sensitive:
        value = None
        synonyms = [ConfigSynonym(synonym.name, None, synonym.source) for synonym in synonyms]
    return ConfigEntry(
        name or definition.key,
        value,
        synonyms[0].source if synonyms else DEFAULT_CONFIG,
        definition.type,
        definition.sensitive,
        read_only,
        tuple(synonyms),
        "" if listener_key(name) else definition.documentation,
    )
