"""DescribeConfigs (key 32), versions 1 to 4: settings of topics and brokers, where their values come from, what they
mean.

- 1 sources and synonyms; 3 types and documentation; 4 flexible.
- Null or no keys ask for all. A broker resource with an empty name stands for the settings of all brokers.
- Gap: loggers, groups and client metrics are refused with INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.registry import handles
from config.describe import SOURCE_IDS, ConfigEntry, describe_broker, describe_broker_defaults, describe_topic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse

if TYPE_CHECKING:
    from broker.context import Broker, Call

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4


@handles(ApiKey.DESCRIBE_CONFIGS, 1, 4)
def describe_configs(broker: Broker, request: DescribeConfigsRequest, call: Call) -> DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        result = DescribeConfigsResponse.DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            entries = _describe(broker, resource.resource_type, resource.resource_name)
            wanted = resource.configuration_keys
            result.configs = [_entry(entry, request) for entry in entries if not wanted or entry.name in wanted]
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _describe(broker: Broker, resource_type: int, name: str) -> list[ConfigEntry]:
    if resource_type == TOPIC_RESOURCE:
        if not broker.admin.is_legal_topic_name(name):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a legal topic name")
        if broker.metadata.topic(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name!r}")
        return describe_topic(broker.topic_configs.overrides(name), broker.config)
    if resource_type != BROKER_RESOURCE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {resource_type} is not served")
    if name == "":
        return describe_broker_defaults(broker.config)
    if name != str(broker.broker_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"ask broker {name} itself; this is broker {broker.broker_id}")
    return describe_broker(broker.config)


def _entry(
    entry: ConfigEntry, request: DescribeConfigsRequest
) -> DescribeConfigsResponse.DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=entry.name,
        value=None if entry.sensitive else entry.value,
        read_only=entry.read_only,
        config_source=entry.source_id,
        is_sensitive=entry.sensitive,
        config_type=entry.type_id,
        documentation=entry.documentation if request.include_documentation else None,
        synonyms=[
            DescribeConfigsResponse.DescribeConfigsSynonym(
                name=synonym.name, value=None if entry.sensitive else synonym.value, source=SOURCE_IDS[synonym.source]
            )
            for synonym in synonyms
        ],
    )
