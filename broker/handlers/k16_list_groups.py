"""ListGroups (key 16), versions 0 to 5: the groups that this broker coordinates.

- 3 flexible; 4 by state (KIP-518); 5 by type (KIP-848).
- COORDINATOR_LOAD_IN_PROGRESS instead of an incomplete list, also while a log of groups is recovered after a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ListGroupsRequest, ListGroupsResponse
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC

if TYPE_CHECKING:
    from gregor.broker.context import Call, GroupContext


@handles(ApiKey.LIST_GROUPS, 0, 5)
async def list_groups(broker: GroupContext, request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    if any(broker.logs.is_loading(GROUP_METADATA_TOPIC, index) for index in range(broker.groups.partition_count)):
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return await broker.groups.list_groups(request, call.version)
