"""Heartbeat (key 12), versions 0 to 4: a member is alive; the response shows whether a rebalance is in progress.

- 3 static members; 4 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, GroupContext


@handles(ApiKey.HEARTBEAT, 0, 4, eager=True, repeats=True)
def heartbeat(broker: GroupContext, request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
    return broker.groups.heartbeat(request, call.version)
