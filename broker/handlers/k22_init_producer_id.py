"""InitProducerId (key 22), versions 0 to 5: a producer id for an idempotent producer.

- 2 flexible; 3 the producer names the id and epoch it has (KIP-360); 5 aborts of the new transaction protocol.
- A producer without a transactional id gets a new id with epoch 0, even if it names one: such ids are not fenced.
- Gap: a transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED: fatal to every client, where a
  retriable error would leave it waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, ProducerIdContext


@handles(ApiKey.INIT_PRODUCER_ID, 0, 5)
async def init_producer_id(
    broker: ProducerIdContext, request: InitProducerIdRequest, call: Call
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        code = (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if request.transactional_id else ErrorCode.INVALID_REQUEST
        )
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    try:
        return InitProducerIdResponse(producer_id=await broker.producer_ids.next_id(), producer_epoch=0)
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
