"""JoinGroup (key 11), versions 0 to 9: a member joins its group's next generation; the response is sent when that
begins.

- 1 rebalance timeout; 4 a first join gets its member id by MEMBER_ID_REQUIRED (KIP-394); 5 static members (KIP-345);
  6 flexible; 7 protocol type; 8 reason (KIP-800); 9 skip assignment (KIP-814).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import JoinGroupRequest, JoinGroupResponse
from gregor.protocol.turns import ITEMS_PER_STEP

if TYPE_CHECKING:
    from gregor.broker.context import Call, GroupContext
    from gregor.protocol.deferred import Deferred


def _is_short(response: JoinGroupResponse) -> bool:
    return len(response.members) <= ITEMS_PER_STEP


@handles(ApiKey.JOIN_GROUP, 0, 9, eager=True, is_short=_is_short)
def join_group(broker: GroupContext, request: JoinGroupRequest, call: Call) -> Deferred[JoinGroupResponse]:
    return broker.groups.join_group(request, call.client_id, call.client_host, call.version)
