"""AddPartitionsToTxn (key 24), versions 0 to 5: partitions become part of a transaction before its records are sent.

- 2 PRODUCER_FENCED, where versions before have INVALID_PRODUCER_EPOCH; 3 flexible; 4 many transactions and the mere
  verification that partitions are part of one, both for brokers; 5 TRANSACTION_ABORTABLE (KIP-890).
- Where a partition does not exist, none is added: it gets UNKNOWN_TOPIC_OR_PARTITION, the others of the transaction
  OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, TransactionContext
    from gregor.protocol.turns import Turns

MANY_TRANSACTIONS_FROM = 4

_Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
_TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult


@handles(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, changes=True, eager=True)
async def add_partitions_to_txn(
    broker: TransactionContext, request: AddPartitionsToTxnRequest, call: Call
) -> AddPartitionsToTxnResponse:
    turns = broker.gate.turns()
    if call.version < MANY_TRANSACTIONS_FROM:
        missing = await _refusal(broker, request.v3_and_below_topics, turns)
        if missing is not None:
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=missing)
        return await broker.transactions.add_partitions(request, call.version)
    known = []
    refused = []
    for transaction in request.transactions:
        await turns.next()
        missing = await _refusal(broker, transaction.topics, turns)
        if missing is None:
            known.append(transaction)
        else:
            refused.append(
                AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id, topic_results=missing
                )
            )
    if refused and not known:
        return AddPartitionsToTxnResponse(results_by_transaction=refused)
    response = await broker.transactions.add_partitions(request.replaced(transactions=known), call.version)
    return response.replaced(results_by_transaction=[*response.results_by_transaction, *refused])


async def _refusal(broker: TransactionContext, topics: Collection[_Topic], turns: Turns) -> list[_TopicResult] | None:
    """Return the errors of all partitions of a transaction if one of them does not exist."""
    present = {}
    all_exist = True
    for topic in topics:
        await turns.next()
        state = broker.metadata.topic(topic.name)
        there = present[topic.name] = {} if state is None else state.partitions
        for index in topic.partitions:
            await turns.next()
            all_exist = all_exist and index in there
    if all_exist:
        return None
    refused = []
    for topic in topics:
        await turns.next()
        there, results = present[topic.name], []
        for index in topic.partitions:
            await turns.next()
            error = ErrorCode.OPERATION_NOT_ATTEMPTED if index in there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append(_PartitionResult(partition_index=index, partition_error_code=error))
        refused.append(_TopicResult(name=topic.name, results_by_partition=results))
    return refused
