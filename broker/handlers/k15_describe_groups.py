"""DescribeGroups (key 15), versions 0 to 6: members, their subscriptions and assignments, of classic groups.

- 3 authorized operations; 4 static members; 5 flexible; 6 GROUP_ID_NOT_FOUND and error messages (KIP-1043).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.answers.authorized_operations import with_group_operations
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, GroupContext


@handles(ApiKey.DESCRIBE_GROUPS, 0, 6)
async def describe_groups(broker: GroupContext, request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
    response = await broker.groups.describe_groups(request, call.version)
    if request.include_authorized_operations:
        return await with_group_operations(broker, call, response)
    return response
