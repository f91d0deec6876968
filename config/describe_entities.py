"""Settings of groups, client metrics subscriptions and loggers as DescribeConfigs returns them."""

from __future__ import annotations

from collections.abc import Mapping

from gregor.config.broker import DEFAULT_CONFIG, BrokerConfig
from gregor.config.describe import (
    DYNAMIC_BROKER_LOGGER_CONFIG,
    DYNAMIC_CLIENT_METRICS_CONFIG,
    DYNAMIC_GROUP_CONFIG,
    UNKNOWN,
    ConfigEntry,
    ConfigSynonym,
    broker_layers,
    config_entry,
    text_of,
)
from gregor.config.tables.client_metrics import CLIENT_METRICS_KEYS
from gregor.config.tables.group_keys import GROUP_KEYS


def describe_group(texts: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """Describe all settings of a group; ``texts`` are its own."""
    entries = []
    for key, definition in GROUP_KEYS.items():
        synonyms = broker_layers(definition.broker_synonyms[0], broker) if definition.broker_synonyms else []
        if not definition.broker_synonyms:
            synonyms.append(ConfigSynonym(key, definition.format(definition.default), DEFAULT_CONFIG))
        value = synonyms[0].value
        if key in texts:
            value = text_of(definition, texts[key])
            synonyms.insert(0, ConfigSynonym(key, value, DYNAMIC_GROUP_CONFIG))
        entries.append(config_entry(definition, value, synonyms, read_only=False))
    return entries


def describe_client_metrics(texts: Mapping[str, str]) -> list[ConfigEntry]:
    """Describe all settings of a subscription; ``texts`` are its own."""
    entries = []
    for key, definition in CLIENT_METRICS_KEYS.items():
        value = texts.get(key, definition.format(definition.default))
        synonyms = [ConfigSynonym(key, value, DYNAMIC_CLIENT_METRICS_CONFIG)] if key in texts else []
        entries.append(config_entry(definition, value, synonyms, read_only=False))
    return entries


def describe_logger(name: str, level: str) -> ConfigEntry:
    """Describe the level of one logger, which has neither a type nor synonyms."""
    return ConfigEntry(name, level, DYNAMIC_BROKER_LOGGER_CONFIG, UNKNOWN, False, False, (), "")
