"""The output of `gregor configs --describe`."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import NamedTuple

from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.tables import Column, on_terminal, print_table
from gregor.broker.cli.wire import WireClient, check_code
from gregor.protocol.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ListConfigResourcesRequest,
    ListGroupsRequest,
    MetadataRequest,
)

BROKER_DEFAULT = ""


class EntityType(StrEnum):
    """The entity types, as --entity-type names them."""

    TOPICS = "topics"
    BROKERS = "brokers"
    BROKER_LOGGERS = "broker-loggers"
    CLIENT_METRICS = "client-metrics"
    GROUPS = "groups"

    @property
    def resource_type(self) -> int:
        """Return the number of Kafka's ConfigResource.Type."""
        return _RESOURCE_TYPES[self]

    @property
    def one(self) -> str:
        """Return the singular as Kafka's tool forms it, also of client-metrics."""
        return self.value[:-1]


_RESOURCE_TYPES = {
    EntityType.TOPICS: 2,
    EntityType.BROKERS: 4,
    EntityType.BROKER_LOGGERS: 8,
    EntityType.CLIENT_METRICS: 16,
    EntityType.GROUPS: 32,
}


class Source(IntEnum):
    """The config sources of DescribeConfigs, with the names of Java's ConfigEntry.ConfigSource."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


_WORDS: dict[int, str] = {
    Source.DYNAMIC_TOPIC_CONFIG: "topic",
    Source.DYNAMIC_BROKER_CONFIG: "broker",
    Source.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers",
    Source.STATIC_BROKER_CONFIG: "file",
    Source.DEFAULT_CONFIG: "default",
    Source.DYNAMIC_BROKER_LOGGER_CONFIG: "logger",
    Source.DYNAMIC_CLIENT_METRICS_CONFIG: "subscription",
    Source.DYNAMIC_GROUP_CONFIG: "group",
}
"""The sources in words, for tables."""

_ALTERED = {
    EntityType.TOPICS: Source.DYNAMIC_TOPIC_CONFIG,
    EntityType.BROKERS: Source.DYNAMIC_BROKER_CONFIG,
    EntityType.CLIENT_METRICS: Source.DYNAMIC_CLIENT_METRICS_CONFIG,
    EntityType.GROUPS: Source.DYNAMIC_GROUP_CONFIG,
}
"""The source of values that were altered on the entity itself; of loggers all values are shown."""


class Entity(NamedTuple):
    """An entity; `name` is None for all of a type, BROKER_DEFAULT for the default of all brokers."""

    kind: EntityType
    name: str | None


Setting = DescribeConfigsResponse.DescribeConfigsResourceResult


def node_for(entity: Entity, client: WireClient) -> int | None:
    """Return the broker that describes the entity: a broker itself, else the controller; None if there is none."""
    numbered = entity.kind in (EntityType.BROKERS, EntityType.BROKER_LOGGERS)
    return int(entity.name) if numbered and entity.name else client.controller_id if client.controller_id >= 0 else None


def describe(client: WireClient, entity: Entity, *, everything: bool) -> None:
    """Print the settings of one entity, or of all of its type."""
    kind = entity.kind
    if entity.name is None:
        names = existing(client, kind)
        if kind is EntityType.BROKERS:
            names.append(BROKER_DEFAULT)
    else:
        names = [entity.name]
        if entity.name != BROKER_DEFAULT and not everything and entity.name not in existing(client, kind):
            raise CommandError(f"the {kind.one} '{entity.name}' does not exist or has no settings of its own.")
    for name in names:
        found = settings(client, Entity(kind, name))
        if not everything:
            found = altered(Entity(kind, name), found)
        if name == BROKER_DEFAULT:
            title = f"Default configs for {kind} in the cluster are:"
        else:
            title = f"{'All' if everything else 'Dynamic'} configs for {kind.one} {name} are:"
        show(title, sorted(found, key=lambda setting: setting.name))


def existing(client: WireClient, kind: EntityType) -> list[str]:
    """Return the entities of a type; client metrics only with settings, groups with or without."""
    if kind is EntityType.TOPICS:
        return sorted(topic.name for topic in client.send(MetadataRequest(topics=None)).topics)
    if kind in (EntityType.BROKERS, EntityType.BROKER_LOGGERS):
        return [str(node_id) for node_id in sorted(client.brokers)]
    names = _with_settings(client, kind)
    if kind is EntityType.GROUPS:
        for node_id in sorted(client.brokers):
            listed = client.send(ListGroupsRequest(), node_id)
            check_code(listed.error_code)
            names |= {group.group_id for group in listed.groups}
    return sorted(names)


def _with_settings(client: WireClient, kind: EntityType) -> set[str]:
    """Return the client metrics or groups that have settings. Version 0, of Kafka until 4.0, lists client metrics only;
    such a broker has no settings of groups."""
    types = [kind.resource_type]
    if client.version(ListConfigResourcesRequest) == 0:
        if kind is not EntityType.CLIENT_METRICS:
            return set()
        types = []
    answer = client.send(ListConfigResourcesRequest(resource_types=types))
    check_code(answer.error_code)
    return {resource.resource_name for resource in answer.config_resources}


def settings(client: WireClient, entity: Entity) -> list[Setting]:
    """Fetch all settings of one entity; raise BrokerRefusal if the broker refuses."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=entity.kind.resource_type, resource_name=entity.name or "", configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    answer: DescribeConfigsResponse = client.send(request, node_for(entity, client))
    for result in answer.results:
        check_code(result.error_code, result.error_message)
        return list(result.configs)
    return []


def altered(entity: Entity, found: list[Setting]) -> list[Setting]:
    """Return those of the settings that were altered on the entity itself; of loggers all."""
    if entity.kind not in _ALTERED:
        return found
    source = Source.DYNAMIC_DEFAULT_BROKER_CONFIG if entity.name == BROKER_DEFAULT else _ALTERED[entity.kind]
    return [setting for setting in found if setting.config_source == source]


def show(title: str, found: list[Setting]) -> None:
    """Print a table on a terminal, lines otherwise."""
    if on_terminal():
        columns = [Column("NAME"), Column("VALUE"), Column("FROM")]
        rows = [
            [setting.name, value_text(setting.value, setting.is_sensitive), _WORDS.get(setting.config_source, "")]
            for setting in found
        ]
        print_table(columns, rows, title=title)
        return
    print(title)
    for setting in found:
        synonyms = ", ".join(f"{source_name(one.source)}:{one.name}={_java(one.value)}" for one in setting.synonyms)
        sensitive = "true" if setting.is_sensitive else "false"
        print(f"  {setting.name}={_java(setting.value)} sensitive={sensitive} synonyms={{{synonyms}}}")


def value_text(value: str | None, sensitive: bool) -> str:
    """Return the text of a value; brokers do not send secrets."""
    return "(hidden)" if sensitive and value is None else value or ""


def source_name(number: int) -> str:
    """Return the Java client's name of a config source."""
    return Source(number).name if number in Source.__members__.values() else Source.UNKNOWN.name


def _java(value: str | None) -> str:
    return "null" if value is None else value
