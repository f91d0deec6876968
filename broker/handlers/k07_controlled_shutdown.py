"""ControlledShutdown (key 7), versions 0 to 3: a broker that is about to stop has the controller move what it leads.

- 1 an ordinary request header, with a client id; 2 the broker's epoch; 3 flexible.
- Answered by the controller; others say NOT_CONTROLLER. What the broker still leads, for want of another replica in
  sync, stands in the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import ControlledShutdownRequest, ControlledShutdownResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, ControllerContext


@handles(ApiKey.CONTROLLED_SHUTDOWN, 0, 3, changes=True)
async def controlled_shutdown(
    broker: ControllerContext, request: ControlledShutdownRequest, call: Call
) -> ControlledShutdownResponse:
    return await broker.controller.controlled_shutdown(request)
