"""DeleteGroups (key 42), versions 0 to 3: delete groups that have no members, with their offsets.

- 2 flexible; 3 (Kafka 4.4) error messages, which only groups of Kafka Streams have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, GroupContext


@handles(ApiKey.DELETE_GROUPS, 0, 3, changes=True)
async def delete_groups(broker: GroupContext, request: DeleteGroupsRequest, call: Call) -> DeleteGroupsResponse:
    return await broker.groups.delete_groups(request, call.version)
