"""ListPartitionReassignments (key 46), versions 0 to 0: partitions whose replicas move to others (KIP-455).

- The controller serves it from its context; other brokers respond with NOT_CONTROLLER. The response omits topics and
  partitions that do not exist or do not move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import KafkaError
from gregor.protocol.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from gregor.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from gregor.broker.context import AdminContext, Call

_Topic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
_Partition = ListPartitionReassignmentsResponse.OngoingPartitionReassignment


@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0)
async def list_partition_reassignments(
    broker: AdminContext, request: ListPartitionReassignmentsRequest, call: Call
) -> ListPartitionReassignmentsResponse:
    wanted: set[TopicPartition] | None = None
    if request.topics is not None:
        wanted = set()
        turns = broker.gate.turns()
        for topic in request.topics:
            await turns.next()
            for index in topic.partition_indexes:
                await turns.next()
                wanted.add(TopicPartition(topic.name, index))
    try:
        moving = await broker.admin.replicas.reassignments(wanted, request.timeout_ms)
    except KafkaError as error:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
    topics: dict[str, _Topic] = {}
    for (name, index), assignment in sorted(moving.items()):
        topics.setdefault(name, _Topic(name=name)).partitions.append(
            _Partition(
                partition_index=index,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
            )
        )
    return ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))
