"""AllocateProducerIds (key 67), versions 0 to 0: the controller gives a broker a block of producer ids (KIP-730).

- The controller serves it; other brokers respond with NOT_CONTROLLER.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, ControllerContext


@handles(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, changes=True)
async def allocate_producer_ids(
    broker: ControllerContext, request: AllocateProducerIdsRequest, call: Call
) -> AllocateProducerIdsResponse:
    return await broker.controller.allocate_producer_ids(request)
