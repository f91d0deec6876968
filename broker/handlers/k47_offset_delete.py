"""OffsetDelete (key 47), versions 0 to 0: delete the committed offsets of a group for some partitions (KIP-496).

- GROUP_SUBSCRIBED_TO_TOPIC for topics that members of a consumer group subscribe to, NON_EMPTY_GROUP for other groups
  with members, GROUP_ID_NOT_FOUND where there is no group. To delete an offset that was never committed is a success.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import OffsetDeleteRequest, OffsetDeleteResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, GroupContext

_Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
_Partition = OffsetDeleteResponse.OffsetDeleteResponsePartition


@handles(ApiKey.OFFSET_DELETE, 0, 0, changes=True)
async def offset_delete(broker: GroupContext, request: OffsetDeleteRequest, call: Call) -> OffsetDeleteResponse:
    unknown: list[_Topic] = []
    known: list[OffsetDeleteRequest.OffsetDeleteRequestTopic] = []
    turns = broker.gate.turns()
    for topic in request.topics:
        await turns.next()
        state = broker.metadata.topic(topic.name)
        present = () if state is None else state.partitions
        there = []
        answers = []
        for partition in topic.partitions:
            await turns.next()
            if partition.partition_index in present:
                there.append(partition)
            else:
                answers.append(
                    _Partition(
                        partition_index=partition.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    )
                )
        if there:
            known.append(OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic.name, partitions=there))
        if answers:
            unknown.append(_Topic(name=topic.name, partitions=answers))
    response = await broker.groups.delete_offsets(OffsetDeleteRequest(group_id=request.group_id, topics=known))
    if not response.error_code:
        by_name = {topic.name: topic for topic in response.topics}
        for refused in unknown:
            if refused.name in by_name:
                by_name[refused.name].partitions.extend(refused.partitions)
            else:
                response.topics.append(refused)
    return response
