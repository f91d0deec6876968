"""EndTxn (key 26), versions 0 to 5: commits or aborts the transaction of a producer.

The response follows once the decision is committed to the log of transactions; the markers in the partitions follow
later, and until then the next transaction of the producer gets CONCURRENT_TRANSACTIONS.

- 2 PRODUCER_FENCED, where versions before have INVALID_PRODUCER_EPOCH; 3 flexible; 4 TRANSACTION_ABORTABLE; 5 the
  producer's next epoch, with which its next transaction begins (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, TransactionContext


@handles(ApiKey.END_TXN, 0, 5, changes=True, eager=True)
async def end_txn(broker: TransactionContext, request: EndTxnRequest, call: Call) -> EndTxnResponse:
    return await broker.transactions.end_transaction(request, call.version)
