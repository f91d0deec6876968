"""IncrementalAlterConfigs (key 44), versions 0 to 1 (KIP-339): set, delete, append to and subtract from settings.

- 1 flexible.
- Topics, and the dynamic settings of this broker or, with an empty name, of all; in effect when answered.
- Gap: loggers, groups and client metrics are refused with INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.k32_describe_configs import BROKER_RESOURCE, TOPIC_RESOURCE
from broker.registry import handles
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from replication.config_changes import ConfigChange
from replication.topics_admin import BROKER_DEFAULT

if TYPE_CHECKING:
    from broker.context import Broker, Call


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1)
async def incremental_alter_configs(
    broker: Broker, request: IncrementalAlterConfigsRequest, call: Call
) -> IncrementalAlterConfigsResponse:
    answers = []
    named = [(resource.resource_type, resource.resource_name) for resource in request.resources]
    for resource in request.resources:
        answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        try:
            if named.count((resource.resource_type, resource.resource_name)) > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "named twice")
            await _alter(broker, resource, request.validate_only)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message or None
        answers.append(answer)
    return IncrementalAlterConfigsResponse(responses=answers)


async def _alter(
    broker: Broker, resource: IncrementalAlterConfigsRequest.AlterConfigsResource, validate_only: bool
) -> None:
    changes = [ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs]
    name = resource.resource_name
    if resource.resource_type == TOPIC_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "topics have no settings in common")
        if not broker.admin.is_legal_topic_name(name):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a legal topic name")
        await broker.admin.alter_topic_config(name, changes, validate_only=validate_only)
    elif resource.resource_type == BROKER_RESOURCE:
        if name and not name.isdecimal():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a broker is named by its number, not {name!r}")
        broker_id = int(name) if name else BROKER_DEFAULT
        await broker.admin.alter_broker_config(broker_id, changes, validate_only=validate_only)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} is not served")
