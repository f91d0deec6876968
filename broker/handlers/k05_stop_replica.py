"""StopReplica (key 5), versions 0 to 4: the controller removes replicas from this broker, with or without their logs.

- 1 the broker's epoch, partitions by topic; 2 flexible; 3 leader epoch of each partition, and whether its log is
  deleted; 4 KRaft controllers during a migration.
- Requests with an old controller epoch or an old broker epoch are refused as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.part_of import controller_request_handler
from gregor.broker.registry import handles, on_part
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import StopReplicaRequest, StopReplicaResponse
from gregor.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gregor.broker.context import Call
    from gregor.replication.partition.controller_request_handler import ControllerRequestHandler

BY_TOPIC_FROM = 1
EPOCHS_FROM = 3

_Topic = StopReplicaRequest.StopReplicaTopicState
_Partition = StopReplicaRequest.StopReplicaPartitionState


@handles(ApiKey.STOP_REPLICA, 0, 4, changes=True)
@on_part(controller_request_handler)
async def stop_replica(
    requests: ControllerRequestHandler, request: StopReplicaRequest, call: Call
) -> StopReplicaResponse:
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
        request = request.replaced(topic_states=list(topics.values()))
    response = await requests.handle(request, call.connection.number)
    assert isinstance(response, StopReplicaResponse)
    return response
