"""ConsumerGroupDescribe (key 69), versions 0 to 1: members, epochs and assignments of consumer groups (KIP-848).

- 1 the protocol of each member (KIP-1099).
- GROUP_ID_NOT_FOUND for classic groups and those that do not exist: clients then send DescribeGroups. INVALID_GROUP_ID
  for an empty group id, which only a classic group can have.
- UNSUPPORTED_VERSION while this broker does not serve the consumer protocol, as ConsumerGroupHeartbeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.answers.authorized_operations import with_group_operations
from gregor.broker.groups.protocols import serves_consumer_groups
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, ConsumerGroupContext

_Group = ConsumerGroupDescribeResponse.DescribedGroup


@handles(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1)
async def consumer_group_describe(
    broker: ConsumerGroupContext, request: ConsumerGroupDescribeRequest, call: Call
) -> ConsumerGroupDescribeResponse:
    turns = broker.gate.turns()
    if not serves_consumer_groups(broker):
        refused = []
        for group_id in request.group_ids:
            await turns.next()
            refused.append(_Group(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION))
        return ConsumerGroupDescribeResponse(groups=refused)
    response = await broker.groups.consumer_group_describe(request)
    if request.include_authorized_operations:
        return await with_group_operations(broker, call, response)
    return response
