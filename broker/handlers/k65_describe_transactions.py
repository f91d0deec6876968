"""DescribeTransactions (key 65), versions 0 to 0: the transactions of some transactional ids (KIP-664).

An id that another broker coordinates gets NOT_COORDINATOR, an unknown one TRANSACTIONAL_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import DescribeTransactionsRequest, DescribeTransactionsResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, TransactionContext


@handles(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0)
async def describe_transactions(
    broker: TransactionContext, request: DescribeTransactionsRequest, call: Call
) -> DescribeTransactionsResponse:
    return await broker.transactions.describe(request)
