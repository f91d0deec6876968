"""ControlledShutdown (key 7), versions 0 to 3: a broker that is about to stop requests other leaders of its partitions.

- 1 an ordinary request header, with a client id; 2 the broker's epoch; 3 flexible.
- The controller serves it; other brokers respond with NOT_CONTROLLER. The response names the partitions that the broker
  still leads, as no other replica is in sync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.part_of import controller_answers
from gregor.broker.registry import handles, on_part
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import ControlledShutdownRequest, ControlledShutdownResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.replication.controller.answers import ControllerAnswers


@handles(ApiKey.CONTROLLED_SHUTDOWN, 0, 3, changes=True)
@on_part(controller_answers)
async def controlled_shutdown(
    controller: ControllerAnswers, request: ControlledShutdownRequest, call: Call
) -> ControlledShutdownResponse:
    return await controller.controlled_shutdown(request)
