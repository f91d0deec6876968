"""LeaveGroup (key 13), versions 0 to 5: members leave their group at once, instead of by their session timeout.

- 3 several members in one request; 4 flexible; 5 reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, GroupContext


@handles(ApiKey.LEAVE_GROUP, 0, 5, changes=True, eager=True)
async def leave_group(broker: GroupContext, request: LeaveGroupRequest, call: Call) -> LeaveGroupResponse:
    return await broker.groups.leave_group(request, call.version)
