"""ListConfigResources (key 74), versions 0 to 1 (KIP-1142): the names of resources that have settings.

- 0 is ListClientMetricsResources of Apache Kafka before 4.1: client metrics subscriptions only.
- No types mean all. Topics and brokers are always listed, groups and subscriptions if they have settings.
- An unknown type: UNSUPPORTED_VERSION, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.answers.config_resources import ResourceType, entity_type_of
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ListConfigResourcesRequest, ListConfigResourcesResponse

if TYPE_CHECKING:
    from gregor.broker.context import AdminContext, Call

_ALL = tuple(ResourceType)


@handles(ApiKey.LIST_CONFIG_RESOURCES, 0, 1)
async def list_config_resources(
    broker: AdminContext, request: ListConfigResourcesRequest, call: Call
) -> ListConfigResourcesResponse:
    wanted = request.resource_types or _ALL
    if call.version == 0:
        wanted = (ResourceType.CLIENT_METRICS,)
    if not set(wanted) <= set(_ALL):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind in dict.fromkeys(wanted)
            for name in await _names(broker, kind)
        ]
    )


async def _names(broker: AdminContext, kind: int) -> list[str]:
    if kind == ResourceType.TOPIC:
        return [topic.name for topic in broker.metadata.topics()]
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(broker.metadata.brokers)]
    return await broker.admin.settings.names(entity_type_of(kind))
