"""AllocateProducerIds (key 67), versions 0 to 0: the controller gives a broker a block of producer ids (KIP-730).

- The controller serves it; other brokers respond with NOT_CONTROLLER.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.part_of import controller_answers
from gregor.broker.registry import handles, on_part
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.replication.controller.answers import ControllerAnswers


@handles(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, changes=True)
@on_part(controller_answers)
async def allocate_producer_ids(
    controller: ControllerAnswers, request: AllocateProducerIdsRequest, call: Call
) -> AllocateProducerIdsResponse:
    return await controller.allocate_producer_ids(request)
