"""AlterConfigs (key 33), versions 0 to 2: all settings of a resource at once; the others go back to defaults.

- 2 flexible.
- Topics, the dynamic settings of this broker or, with an empty name, of all, groups and client metrics
  subscriptions; in effect when answered. Levels of loggers are altered by IncrementalAlterConfigs (44) only.
- What is refused on purpose, where Apache Kafka does not: see k44_incremental_alter_configs.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.answers.config_resources import ENTITY_TYPES, check_resource, named_twice, unknown_type
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import KafkaError
from gregor.protocol.messages import AlterConfigsRequest, AlterConfigsResponse
from gregor.replication.admin.configs import replacement
from gregor.replication.store.time_limit import TimeLimit

if TYPE_CHECKING:
    from gregor.broker.context import AdminContext, Call


@handles(ApiKey.ALTER_CONFIGS, 0, 2, changes=True)
async def alter_configs(broker: AdminContext, request: AlterConfigsRequest, call: Call) -> AlterConfigsResponse:
    answers = []
    limit = TimeLimit()
    turns = broker.gate.turns()
    twice = await named_twice(request.resources, turns)
    for resource in request.resources:
        await turns.next()
        answer = AlterConfigsResponse.AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        try:
            check_resource(resource, twice)
            entity_type = ENTITY_TYPES.get(resource.resource_type)
            if entity_type is None:
                raise unknown_type(resource.resource_type)
            edit = replacement({config.name: config.value or "" for config in resource.configs})
            name = resource.resource_name
            await broker.admin.settings.alter(entity_type, name, edit, limit, validate_only=request.validate_only)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message or None
        answers.append(answer)
    return AlterConfigsResponse(responses=answers)
