"""Client metrics subscriptions (CLIENT_METRICS resources) in effect on this broker, and those that match a client.

Apache Kafka: ClientMetricsManager and ClientMetricsConfigs. Patterns are matched by RE2, whose time is linear in what
a client sends; one that RE2 does not know matches no client, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from gregor.broker.log import logger
from gregor.config.definitions import ConfigError
from gregor.config.tables.client_metrics import CLIENT_METRICS_KEYS, check_client_metrics
from gregor.coordinator.group.consumer.regular_expressions import compile_expression
from gregor.protocol.errors import KafkaError
from gregor.protocol.records.checksum import crc32c
from gregor.replication.admin.configs import CLIENT_METRICS, entity_name
from gregor.replication.store.metadata_store import NoNode
from gregor.replication.store.nodes import CONFIG, NodeFormatError, config_path, decode_config

if TYPE_CHECKING:
    from gregor.protocol.ids import Uuid
    from gregor.replication.store.metadata_store import MetadataStore
    from gregor.replication.store.topic_configs import TopicConfigs

DEFAULT_INTERVAL_MS: int = 300_000
ALL_METRICS = "*"
Attributes = Mapping[str, str]
"""Of a client, by the names that patterns use."""


class Subscription(NamedTuple):
    """One subscription: the prefixes of metrics, the interval of their pushes, and the clients that it matches."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, Callable[[str], object]]

    def matches(self, attributes: Attributes) -> bool:
        return all(
            (value := attributes.get(name)) is not None and matches(value) for name, matches in self.patterns.items()
        )


class Selection(NamedTuple):
    """The metrics that one client is to send: the sum of the subscriptions that match it."""

    metrics: tuple[str, ...]
    interval_ms: int

    def subscription_id(self, client_instance_id: Uuid) -> int:
        """Return the id of this selection for a client: the CRC-32C of its text, exclusive or the hash of the id."""
        text = f"[{', '.join(self.metrics)}]{self.interval_ms}"
        return _int32(crc32c(text.encode()) ^ _java_hash(client_instance_id))

    def includes(self, name: str) -> bool:
        return self.metrics == (ALL_METRICS,) or name.startswith(self.metrics)


def subscription_of(texts: Mapping[str, str]) -> Subscription:
    """Return the subscription with these settings. Raises ConfigError, or KafkaError for a pattern."""
    check_client_metrics(texts)
    values = {key: definition.default for key, definition in CLIENT_METRICS_KEYS.items()}
    values |= {key: CLIENT_METRICS_KEYS[key].parse(text) for key, text in texts.items()}
    metrics, interval_ms, match = values["metrics"], values["interval.ms"], values["match"]
    assert isinstance(metrics, list) and isinstance(interval_ms, int) and isinstance(match, list)
    patterns = {}
    for one in match:
        name, _, expression = one.partition("=")
        patterns[name.strip()] = compile_expression(expression.strip())
    return Subscription(tuple(metrics), interval_ms, patterns)


class Subscriptions:
    """The subscriptions, read at the start and at each change."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._by_name: dict[str, Subscription] = {}
        self.version = 0
        """Raised by each change."""

    async def start(self, configs: TopicConfigs) -> None:
        """Read all subscriptions and follow their changes."""
        configs.on_client_metrics_changed.append(self.refresh)
        await self.refresh()

    async def refresh(self) -> None:
        """Read all subscriptions again; there are few."""
        try:
            names = await self._store.children(f"{CONFIG}/{CLIENT_METRICS}")
        except NoNode:
            names = []
        found = await self._store.get_many([config_path(CLIENT_METRICS, name) for name in names])
        self.use(
            {
                entity_name(name): _texts(name, node[0])
                for name, node in zip(names, found, strict=True)
                if node is not None
            }
        )

    def use(self, texts_by_name: Mapping[str, Mapping[str, str]]) -> None:
        """Put these settings into effect. A subscription without settings is none."""
        self._by_name = {}
        for name, texts in texts_by_name.items():
            if not texts:
                continue
            try:
                self._by_name[name] = subscription_of(texts)
            except (ConfigError, KafkaError) as error:
                reason = str(error) or "a pattern is not valid"
                logger.warning("client metrics subscription %s is not in effect: %s", name, reason)
        self.version += 1

    def selected_by(self, attributes: Attributes) -> Selection:
        """Return what a client with these attributes is to send."""
        metrics: set[str] = set()
        interval_ms = DEFAULT_INTERVAL_MS
        for one in self._by_name.values():
            if one.matches(attributes):
                metrics.update(one.metrics)
                interval_ms = min(interval_ms, one.interval_ms)
        return Selection((ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)), interval_ms)


def _texts(name: str, data: bytes) -> dict[str, str]:
    try:
        return decode_config(data)
    except NodeFormatError as error:
        logger.warning("client metrics subscription %s cannot be decoded: %s", entity_name(name), error)
        return {}


def _java_hash(uuid: Uuid) -> int:
    """Return the hash code of org.apache.kafka.common.Uuid."""
    both = int.from_bytes(uuid[:8]) ^ int.from_bytes(uuid[8:])
    return (both >> 32 ^ both) & 0xFFFF_FFFF


def _int32(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value
