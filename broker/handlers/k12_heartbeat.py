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
    from gregor.broker.registry import Renewal


def _renewal(
    broker: GroupContext, request: HeartbeatRequest, _call: Call, response: HeartbeatResponse
) -> Renewal | None:
    return None if response.error_code else broker.groups.heartbeat_renewal(request)


@handles(ApiKey.HEARTBEAT, 0, 4, eager=True, repeats=True, renewal=_renewal)
def heartbeat(broker: GroupContext, request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
    return broker.groups.heartbeat(request, call.version)
