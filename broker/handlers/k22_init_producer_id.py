"""InitProducerId (key 22), versions 0 to 5: a producer id and an epoch for an idempotent or a transactional producer.

- 2 flexible; 3 the producer names the id and epoch it has, both or neither (KIP-360); 4 PRODUCER_FENCED, where versions
  before have INVALID_PRODUCER_EPOCH; 5 TRANSACTION_ABORTABLE (KIP-890).
- A producer without a transactional id gets a new id with epoch 0, even if it names one: such ids are not fenced.
- A transactional id fences its producer before, whose open transaction is aborted first: CONCURRENT_TRANSACTIONS until
  then.
- Version 6 (two-phase commit, KIP-939) is not served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, TransactionContext


@handles(ApiKey.INIT_PRODUCER_ID, 0, 5, changes=True)
async def init_producer_id(
    broker: TransactionContext, request: InitProducerIdRequest, call: Call
) -> InitProducerIdResponse:
    if request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await broker.transactions.init_producer_id(request, call.version)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        return InitProducerIdResponse(producer_id=await broker.producer_ids.next_id(), producer_epoch=0)
    except KafkaError as error:
        return _refused(error.code)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
