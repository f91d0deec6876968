"""SyncGroup (key 14), versions 0 to 5: the leader sends the assignment, and every member receives its part.

- 3 static members; 4 flexible; 5 protocol type and name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, GroupContext
    from gregor.protocol.deferred import Deferred


@handles(ApiKey.SYNC_GROUP, 0, 5, eager=True)
def sync_group(broker: GroupContext, request: SyncGroupRequest, call: Call) -> Deferred[SyncGroupResponse]:
    return broker.groups.sync_group(request, call.version)
