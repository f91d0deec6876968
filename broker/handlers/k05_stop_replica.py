"""StopReplica (key 5), versions 0 to 4: the controller takes replicas from this broker, with or without their logs.

- 1 the broker's epoch, partitions by topic; 2 flexible; 3 of each partition its leader epoch, and whether its log goes;
  4 KRaft controllers during a migration.
- Requests of controllers that were replaced, and for an earlier life of this broker, are refused as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import StopReplicaRequest, StopReplicaResponse
from gregor.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gregor.broker.context import Call, ReplicaContext

BY_TOPIC_FROM = 1
EPOCHS_FROM = 3

_Topic = StopReplicaRequest.StopReplicaTopicState
_Partition = StopReplicaRequest.StopReplicaPartitionState


@handles(ApiKey.STOP_REPLICA, 0, 4, changes=True)
async def stop_replica(broker: ReplicaContext, request: StopReplicaRequest, call: Call) -> StopReplicaResponse:
    if call.version < EPOCHS_FROM:
        requested: Iterable[TopicPartition]
        if call.version < BY_TOPIC_FROM:
            requested = (TopicPartition(one.topic_name, one.partition_index) for one in request.ungrouped_partitions)
        else:
            requested = (
                TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes
            )
        topics: dict[str, _Topic] = {}
        for name, index in requested:
            topics.setdefault(name, _Topic(topic_name=name)).partition_states.append(
                _Partition(partition_index=index, delete_partition=request.delete_partitions)
            )
        request.topic_states = list(topics.values())
    response = await broker.controller_requests.handle(request, call.connection.number)
    assert isinstance(response, StopReplicaResponse)
    return response
