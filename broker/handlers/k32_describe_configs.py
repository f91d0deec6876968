"""DescribeConfigs (key 32), versions 0 to 4: settings, the sources of their values, and their meanings.

- 1 sources and synonyms instead of "is default"; 3 types and documentation; 4 flexible.
- Topics, this broker, the defaults of all brokers (a broker without a name), this broker's loggers, groups, client
  metrics subscriptions. Null or no keys mean all. A group or subscription need not exist: it is shown with the
  defaults.
- Every setting of Apache Kafka 4.3.1 is shown; the documentation names those without effect here, and why.
- One resource of an unknown type makes the whole request an INVALID_REQUEST, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from gregor.broker.answers.config_resources import RESOURCE_TYPES, ResourceType, entity_type_of, unknown_type
from gregor.broker.registry import handles
from gregor.config.broker import DEFAULT_CONFIG
from gregor.config.describe import (
    SOURCE_IDS,
    ConfigEntry,
    describe_broker_defaults,
    describe_broker_key,
    describe_topic,
    described_broker_keys,
)
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
from gregor.protocol.turns import collect
from gregor.replication.admin.configs import TOPICS, check_own_number

if TYPE_CHECKING:
    from gregor.broker.context import AdminContext, Call


@handles(ApiKey.DESCRIBE_CONFIGS, 0, 4)
async def describe_configs(
    broker: AdminContext, request: DescribeConfigsRequest, call: Call
) -> DescribeConfigsResponse:
    results = []
    odd: int | None = None
    known: dict[str, None] = {}
    turns = broker.gate.turns()
    for resource in request.resources:
        await turns.next()
        if resource.resource_type not in RESOURCE_TYPES:
            odd = resource.resource_type
            break
        if resource.resource_type == ResourceType.TOPIC and broker.metadata.topic(resource.resource_name) is not None:
            known[resource.resource_name] = None
    own = await broker.admin.settings.texts_of(TOPICS, known) if known and odd is None else {}
    for resource in request.resources:
        await turns.next()
        result = DescribeConfigsResponse.DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            if odd is not None:
                raise unknown_type(odd)
            wanted = frozenset(resource.configuration_keys or ())
            if resource.resource_type == ResourceType.TOPIC:
                entries = _describe_topic(broker, resource.resource_name, own)
            else:
                entries = await _describe(broker, resource.resource_type, resource.resource_name, wanted)
            chosen = (entry for entry in entries if not wanted or entry.name in wanted)
            result.configs = await broker.gate.run(collect(_entry(entry, request, call.version) for entry in chosen))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _describe_topic(
    broker: AdminContext, name: str, own: Mapping[str, dict[str, str] | KafkaError]
) -> Iterable[ConfigEntry]:
    if not broker.admin.is_legal_topic_name(name):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a legal topic name")
    if (texts := own.get(name)) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name!r}")
    if isinstance(texts, KafkaError):
        raise texts
    return describe_topic(texts, broker.config)


async def _describe(
    broker: AdminContext, resource_type: int, name: str, wanted: Collection[str]
) -> Iterable[ConfigEntry]:
    if resource_type == ResourceType.BROKER:
        if name == "":
            return describe_broker_defaults(broker.config)
        check_own_number(name, broker.broker_id)
        keys = described_broker_keys(broker.config)
        # A generator: all settings at once would need milliseconds.
        return (describe_broker_key(key, broker.config) for key in keys if not wanted or key in wanted)
    from gregor.config.describe_entities import describe_client_metrics, describe_group, describe_logger

    if name == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a name is needed")
    if resource_type == ResourceType.BROKER_LOGGER:
        from gregor.broker.jobs import loggers

        check_own_number(name, broker.broker_id)
        return [describe_logger(logger, level) for logger, level in loggers.levels().items()]
    texts = await broker.admin.settings.texts(entity_type_of(resource_type), name)
    if resource_type == ResourceType.GROUP:
        return describe_group(texts, broker.config)
    return describe_client_metrics(texts)


def _entry(
    entry: ConfigEntry, request: DescribeConfigsRequest, version: int
) -> DescribeConfigsResponse.DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=entry.name,
        value=None if entry.sensitive else entry.value,
        read_only=entry.read_only,
        is_default=version == 0 and entry.source == DEFAULT_CONFIG,
        config_source=entry.source_id,
        is_sensitive=entry.sensitive,
        config_type=entry.type_id,
        documentation=(entry.documentation or None) if request.include_documentation else None,
        synonyms=[
            DescribeConfigsResponse.DescribeConfigsSynonym(
                name=synonym.name, value=None if entry.sensitive else synonym.value, source=SOURCE_IDS[synonym.source]
            )
            for synonym in synonyms
        ],
    )
