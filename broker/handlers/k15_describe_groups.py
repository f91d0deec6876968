"""DescribeGroups (key 15), versions 0 to 6: members, their subscriptions and assignments, of classic groups.

- 3 authorized operations; 4 static members; 5 flexible; 6 GROUP_ID_NOT_FOUND and error messages (KIP-1043).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.answers.authorized_operations import authorized_operations
from gregor.broker.authorization.model import ResourceType
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, GroupContext


@handles(ApiKey.DESCRIBE_GROUPS, 0, 6)
async def describe_groups(broker: GroupContext, request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
    response = await broker.groups.describe_groups(request, call.version)
    if request.include_authorized_operations:
        turns = broker.gate.turns()
        groups = []
        for group in response.groups:
            await turns.next()
            if not group.error_code:
                operations = authorized_operations(broker.authorizer, call, ResourceType.GROUP, group.group_id)
                group = group.replaced(authorized_operations=operations)
            groups.append(group)
        return response.replaced(groups=groups)
    return response
