"""LeaderAndIsr (key 4), versions 0 to 7: the controller appoints this broker leader or follower of partitions.

- 1 whether a replica is new; 2 the broker's epoch, partitions by topic; 3 added and removed replicas; 4 flexible; 5
  topic ids, in the response in place of names; 6 recovery from an unclean election; 7 KRaft controllers during a
  migration.
- Requests with an old controller epoch or an old broker epoch are refused as a whole; the former for each partition,
  too, as Apache Kafka 3.9 does.
- Known gap: partitions that a KRaft controller's full request (type 2) omits are not removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.part_of import controller_request_handler
from gregor.broker.registry import handles, on_part
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import LeaderAndIsrRequest, LeaderAndIsrResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.replication.partition.controller_request_handler import ControllerRequestHandler

BY_TOPIC_FROM = 2
ANSWERED_BY_TOPIC_FROM = 5

_Topic = LeaderAndIsrRequest.LeaderAndIsrTopicState


@handles(ApiKey.LEADER_AND_ISR, 0, 7, changes=True)
@on_part(controller_request_handler)
async def leader_and_isr(
    requests: ControllerRequestHandler, request: LeaderAndIsrRequest, call: Call
) -> LeaderAndIsrResponse:
    if call.version < BY_TOPIC_FROM:
        topics: dict[str, _Topic] = {}
        for state in request.ungrouped_partition_states:
            topics.setdefault(state.topic_name, _Topic(topic_name=state.topic_name)).partition_states.append(state)
        request = request.replaced(topic_states=list(topics.values()))
    response = await requests.handle(request, call.connection.number)
    assert isinstance(response, LeaderAndIsrResponse)
    if response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
        response = response.replaced(topics=[_stale(topic) for topic in request.topic_states])
    if call.version < ANSWERED_BY_TOPIC_FROM and response.topics:
        # The response has the topics in the order of the request.
        errors = [
            partition.replaced(topic_name=topic.topic_name)
            for topic, answered in zip(request.topic_states, response.topics, strict=True)
            for partition in answered.partition_errors
        ]
        return response.replaced(topics=[], partition_errors=errors)
    return response


def _stale(topic: _Topic) -> LeaderAndIsrResponse.LeaderAndIsrTopicError:
    make = LeaderAndIsrResponse.LeaderAndIsrPartitionError
    errors = [
        make(partition_index=state.partition_index, error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        for state in topic.partition_states
    ]
    return LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors)
