"""ControlledShutdown (key 7), versions 1 to 3: a broker that is about to stop has the controller move what it leads.

- 2 the broker's epoch; 3 flexible.
- Answered by the controller; others say NOT_CONTROLLER. What the broker still leads, for want of another replica in
  sync, stands in the answer.
- Known gap: version 0, with a request header of its own, which only brokers before 0.9 send.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.registry import handles
from protocol.api_keys import ApiKey
from protocol.messages import ControlledShutdownRequest, ControlledShutdownResponse

if TYPE_CHECKING:
    from broker.context import Broker, Call


@handles(ApiKey.CONTROLLED_SHUTDOWN, 1, 3, changes=True, among_brokers=True)
async def controlled_shutdown(
    broker: Broker, request: ControlledShutdownRequest, call: Call
) -> ControlledShutdownResponse:
    return await broker.controller.controlled_shutdown(request)
