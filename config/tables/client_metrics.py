"""Settings of client metrics subscriptions (CLIENT_METRICS resources, KIP-714), as Apache Kafka 4.3.1 checks them.

A broker with a listener for metrics requests and shows them (broker.telemetry).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gregor.config.definitions import ConfigDef, ConfigError

_MATCHED = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

CLIENT_METRICS_KEYS: dict[str, ConfigDef] = {
    definition.key: definition
    for definition in (
        ConfigDef("interval.ms", "int", 300000, "How often a client sends its metrics."),
        ConfigDef(
            "match",
            "list",
            [],
            "name=pattern of the clients whose metrics are requested; empty: all.",
        ),
        ConfigDef("metrics", "list", [], "Prefixes of the metrics to send; * means all."),
    )
}


class UnknownClientMetricsKey(ConfigError):
    """The setting is unknown, or the interval out of range: Apache Kafka has its own error code for these two."""


def check_client_metrics(texts: Mapping[str, str]) -> None:
    """Raise ConfigError, or UnknownClientMetricsKey in its two cases, unless these settings are legal."""
    for key, text in texts.items():
        definition = CLIENT_METRICS_KEYS.get(key)
        if definition is None:
            raise UnknownClientMetricsKey(key, text, f"must be one of {', '.join(CLIENT_METRICS_KEYS)}")
        value = definition.parse(text)
        if isinstance(value, int) and not 100 <= value <= 3_600_000:
            raise UnknownClientMetricsKey(key, text, "must be from 100 to 3600000 (1 hour)")
        if key == "match" and isinstance(value, list):
            for pattern in value:
                _check_pattern(pattern)


def _check_pattern(pattern: str) -> None:
    name, found, expression = pattern.partition("=")
    if not found or "=" in expression or name.strip() not in _MATCHED:
        raise ConfigError("match", pattern, f"must be name=pattern, name one of {', '.join(_MATCHED)}")
    try:
        re.compile(expression.strip())
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError("match", pattern, f"is no regular expression: {error}") from None
