"""AlterPartition (key 56), versions 0 to 3: leaders request other in-sync replicas from the controller (KIP-497).

- 1 recovery from an unclean election; 2 topic ids for names, and INELIGIBLE_REPLICA, which was OPERATION_NOT_ATTEMPTED
  before; 3 the epochs of these brokers, which must be their present ones.
- The controller serves it; other brokers respond with NOT_CONTROLLER.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.part_of import controller_answers
from gregor.broker.registry import handles, on_part
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.replication.controller.answers import ControllerAnswers


@handles(ApiKey.ALTER_PARTITION, 0, 3, changes=True)
@on_part(controller_answers)
async def alter_partition(
    controller: ControllerAnswers, request: AlterPartitionRequest, call: Call
) -> AlterPartitionResponse:
    return await controller.alter_partition(request, call.version)
