"""AlterConfigs (key 33), versions 0 to 2: all settings of a resource at once; the others return to their defaults.

- 2 flexible.
- Topics, the dynamic settings of this broker or, with an empty name, of all, groups and client metrics
  subscriptions; in effect when answered. Levels of loggers are altered by IncrementalAlterConfigs (44) only.
- Settings that are refused on purpose, unlike by Apache Kafka: see k44_incremental_alter_configs.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.answers.config_resources import alter_resources, entity_type_of
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import AlterConfigsRequest, AlterConfigsResponse
from gregor.replication.admin.configs import replacement
from gregor.replication.store.time_limit import TimeLimit

if TYPE_CHECKING:
    from gregor.broker.context import AdminContext, Call


@handles(ApiKey.ALTER_CONFIGS, 0, 2, changes=True)
async def alter_configs(broker: AdminContext, request: AlterConfigsRequest, call: Call) -> AlterConfigsResponse:
    limit = TimeLimit()

    async def alter(resource: AlterConfigsRequest.AlterConfigsResource) -> None:
        entity_type, name = entity_type_of(resource.resource_type), resource.resource_name
        edit = replacement({config.name: config.value or "" for config in resource.configs})
        await broker.admin.settings.alter(entity_type, name, edit, limit, validate_only=request.validate_only)

    answer_type = AlterConfigsResponse.AlterConfigsResourceResponse
    return AlterConfigsResponse(responses=await alter_resources(broker.gate, request.resources, answer_type, alter))
