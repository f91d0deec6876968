"""ListTransactions (key 66), versions 0 to 2: the transactional ids that this broker coordinates (KIP-664).

- Filters by state and producer id; 1 by the time that a transaction has lasted; 2 by a regular expression of the id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, TransactionContext


@handles(ApiKey.LIST_TRANSACTIONS, 0, 2)
async def list_transactions(
    broker: TransactionContext, request: ListTransactionsRequest, call: Call
) -> ListTransactionsResponse:
    return await broker.transactions.list(request, call.version)
