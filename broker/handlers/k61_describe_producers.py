"""DescribeProducers (key 61), versions 0 to 0: the producers of partitions of this broker (KIP-664).

Of each: its epoch, last sequence and timestamp, the epoch of the coordinator that ended its last transaction, and the
first offset of its open transaction; -1 for what it does not have. Followers answer, too. Tools find transactions that
no coordinator will end by it. The details of a partition name the clients of its open transactions
(gregor.broker.answers.producer_clients).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.answers.current_leaders import why_absent
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeProducersRequest, DescribeProducersResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, DataContext
    from gregor.protocol.turns import Turns

_Partition = DescribeProducersResponse.PartitionResponse
_Producer = DescribeProducersResponse.ProducerState


@handles(ApiKey.DESCRIBE_PRODUCERS, 0, 0)
async def describe_producers(
    broker: DataContext, request: DescribeProducersRequest, call: Call
) -> DescribeProducersResponse:
    topics = []
    turns = broker.gate.turns()
    for topic in request.topics:
        await turns.next()
        partitions = [await _describe(broker, topic.name, index, turns) for index in topic.partition_indexes]
        topics.append(DescribeProducersResponse.TopicResponse(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


async def _describe(broker: DataContext, topic: str, index: int, turns: Turns) -> _Partition:
    await turns.next()
    partition = broker.replicas.get(topic, index)
    if partition is None:
        return _Partition(partition_index=index, error_code=why_absent(broker, topic, index))
    log = partition.log
    if log is None:
        return _Partition(partition_index=index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    producers = []
    for entry in list(log.producers.entries.values()):
        await turns.next()
        producers.append(
            _Producer(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.batches[-1][0] if entry.batches else -1,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.transaction_first_offset,
            )
        )
    in_transactions = [one.producer_id for one in producers if one.current_txn_start_offset >= 0]
    details = broker.producer_clients.details(in_transactions)
    return _Partition(partition_index=index, error_message=details, active_producers=producers)
