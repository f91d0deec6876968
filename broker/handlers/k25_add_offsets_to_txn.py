"""AddOffsetsToTxn (key 25), versions 0 to 4: the committed offsets of a group become part of a transaction.

- 2 PRODUCER_FENCED, where versions before have INVALID_PRODUCER_EPOCH; 3 flexible; 4 TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, TransactionContext


@handles(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, changes=True, eager=True)
async def add_offsets_to_txn(
    broker: TransactionContext, request: AddOffsetsToTxnRequest, call: Call
) -> AddOffsetsToTxnResponse:
    partition = broker.groups.partition_for(request.group_id)
    return await broker.transactions.add_offsets(request, call.version, partition)
