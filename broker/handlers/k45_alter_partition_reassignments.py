"""AlterPartitionReassignments (key 45), versions 0 to 1: move partitions to other brokers, or cancel the move
(KIP-455).

- 1 may forbid another number of replicas (KIP-860).
- The controller serves it; other brokers respond with NOT_CONTROLLER.
- The response is sent when the move has begun and every replica is notified, or with REQUEST_TIMED_OUT after
  `timeout_ms`; the move is over when ListPartitionReassignments does not name the partition any more. An unchanged list
  of replicas is legal, as in Apache Kafka, whose kafka-reassign-partitions sends it before it moves replicas between
  the folders of one broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import KafkaError
from gregor.protocol.messages import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
from gregor.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from gregor.broker.context import AdminContext, Call

ANY_FACTOR_UNTIL = 0

_Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Partition = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, changes=True)
async def alter_partition_reassignments(
    broker: AdminContext, request: AlterPartitionReassignmentsRequest, call: Call
) -> AlterPartitionReassignmentsResponse:
    response = AlterPartitionReassignmentsResponse(error_message=None)
    keep_factor = call.version > ANY_FACTOR_UNTIL and not request.allow_replication_factor_change
    if keep_factor:
        response.allow_replication_factor_change = False
    targets: dict[TopicPartition, tuple[int, ...] | None] = {}
    turns = broker.gate.turns()
    for topic in request.topics:
        await turns.next()
        for partition in topic.partitions:
            await turns.next()
            replicas = partition.replicas
            targets[TopicPartition(topic.name, partition.partition_index)] = (
                None if replicas is None else tuple(replicas)
            )
    try:
        refusals = await broker.admin.replicas.reassign(targets, request.timeout_ms, keep_factor=keep_factor)
    except KafkaError as error:
        return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
    for topic in request.topics:
        await turns.next()
        answer = _Topic(name=topic.name)
        for partition in topic.partitions:
            await turns.next()
            key = TopicPartition(topic.name, partition.partition_index)
            if key not in refusals:
                continue  # named twice, in the response once
            refusal = refusals.pop(key)
            reassigned = _Partition(partition_index=partition.partition_index, error_message=None)
            if refusal is not None:
                reassigned.error_code, reassigned.error_message = refusal.code, refusal.message
            answer.partitions.append(reassigned)
        response.responses.append(answer)
    return response
