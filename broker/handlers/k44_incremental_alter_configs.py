"""IncrementalAlterConfigs (key 44), versions 0 to 1 (KIP-339): set, delete, append to and subtract from settings.

- 1 flexible.
- Topics, the dynamic settings of this broker or, with an empty name, of all, groups, client metrics subscriptions, and
  the levels of this broker's loggers; in effect when answered. Resources are altered one by one.
- An operation that does not exist is UNKNOWN_SERVER_ERROR, for brokers INVALID_REQUEST, as in Apache Kafka.
- On purpose unlike Apache Kafka: an unknown broker setting is refused, not stored; so are those of TLS and SASL, which
  would promise a protection that does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.answers.config_resources import ResourceType, alter_resources, entity_type_of
from gregor.broker.jobs import loggers
from gregor.broker.registry import handles
from gregor.config.definitions import ConfigDef
from gregor.config.tables.broker_keys import BROKER_KEYS
from gregor.config.tables.topic_keys import TOPIC_KEYS
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from gregor.protocol.turns import collect
from gregor.replication.admin.config_changes import ConfigChange, ConfigOperation
from gregor.replication.admin.configs import check_own_number, incremental
from gregor.replication.store.time_limit import TimeLimit

if TYPE_CHECKING:
    from gregor.broker.context import AdminContext, Call


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, changes=True)
async def incremental_alter_configs(
    broker: AdminContext, request: IncrementalAlterConfigsRequest, call: Call
) -> IncrementalAlterConfigsResponse:
    limit = TimeLimit()

    async def alter(resource: IncrementalAlterConfigsRequest.AlterConfigsResource) -> None:
        await _alter(broker, resource, limit, request.validate_only)

    answers = await alter_resources(
        broker.gate,
        request.resources,
        IncrementalAlterConfigsResponse.AlterConfigsResourceResponse,
        alter,
        delete_operation=ConfigOperation.DELETE,
    )
    return IncrementalAlterConfigsResponse(responses=answers)


async def _alter(
    broker: AdminContext,
    resource: IncrementalAlterConfigsRequest.AlterConfigsResource,
    limit: TimeLimit,
    validate_only: bool,
) -> None:
    kind, name = resource.resource_type, resource.resource_name
    each = (ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs)
    changes = await broker.gate.run(collect(each))
    if kind == ResourceType.BROKER_LOGGER:
        check_own_number(name, broker.broker_id)
        loggers.alter(changes, validate_only=validate_only)
        broker.request_logging.follow()
        return
    entity_type = entity_type_of(kind)
    unknown = ErrorCode.INVALID_REQUEST if kind == ResourceType.BROKER else ErrorCode.UNKNOWN_SERVER_ERROR
    edit = incremental(changes, _lists(kind, changes), unknown)
    await broker.admin.settings.alter(entity_type, name, edit, limit, validate_only=validate_only)


def _lists(kind: int, changes: list[ConfigChange]) -> dict[str, ConfigDef]:
    """Return the definitions, which show which settings are lists; groups and subscriptions have no lists."""
    if kind == ResourceType.TOPIC:
        return TOPIC_KEYS
    if kind != ResourceType.BROKER:
        return {}
    if all(change.key in BROKER_KEYS for change in changes):
        return BROKER_KEYS
    from gregor.config.tables.no_effect_keys import keys_without_effect

    return {**BROKER_KEYS, **keys_without_effect()}
