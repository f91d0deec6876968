"""ListGroups (key 16), versions 0 to 5: the groups that this broker coordinates.

- 3 flexible; 4 by state (KIP-518); 5 by type (KIP-848).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.registry import handles
from protocol.api_keys import ApiKey
from protocol.messages import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from broker.context import Broker, Call


@handles(ApiKey.LIST_GROUPS, 0, 5)
async def list_groups(broker: Broker, request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    return await broker.groups.list_groups(request, call.version)
