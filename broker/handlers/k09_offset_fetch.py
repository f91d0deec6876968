"""OffsetFetch (key 9), versions 0 to 10: the committed positions of groups.

- 0 reads the nodes of the metadata tree that commits of version 0 wrote, and is UNKNOWN_TOPIC_OR_PARTITION where there
  is none; 1 the coordinator's offsets; 2 null means all topics; 3 throttle time; 5 leader epochs; 6 flexible; 7
  UNSTABLE_OFFSET_COMMIT for offsets that an open transaction is about to replace, if the client requires stable ones
  (KIP-447); 8 many groups; 9 members of the consumer protocol; 10 topic ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import OffsetFetchRequest, OffsetFetchResponse
from gregor.replication.store.time_limit import TimeLimit

if TYPE_CHECKING:
    from gregor.broker.context import Call, GroupContext
    from gregor.protocol.turns import Turns

COORDINATOR_FROM = 1
TOPIC_IDS_FROM = 10


@handles(ApiKey.OFFSET_FETCH, 0, 10, eager=True)
async def offset_fetch(broker: GroupContext, request: OffsetFetchRequest, call: Call) -> OffsetFetchResponse:
    if call.version < COORDINATOR_FROM:
        return await _fetch_from_nodes(broker, request)
    if call.version < TOPIC_IDS_FROM:
        return await broker.groups.offset_fetch(request, call.version)
    turns = broker.gate.turns()
    unknown = []
    wanted = []
    for group in request.groups:
        await turns.next()
        named, absent = await _by_name(broker, group, turns)
        unknown.append(absent)
        wanted.append(named)
    response = await broker.groups.offset_fetch(request.replaced(groups=wanted), call.version)
    answers = []
    for answered, absent in zip(response.groups, unknown, strict=True):  # in order: a group may be named twice
        await turns.next()
        if not answered.error_code:
            topics = await _identified(broker, answered.topics, turns)
            answered = answered.replaced(topics=[*topics, *absent])
        answers.append(answered)
    return response.replaced(groups=answers)


async def _identified(
    broker: GroupContext, topics: Iterable[OffsetFetchResponse.OffsetFetchResponseTopics], turns: Turns
) -> list[OffsetFetchResponse.OffsetFetchResponseTopics]:
    """Return the answers with the ids of their topics: a deleted topic has no id under which it could be named."""
    identified = []
    for topic in topics:
        await turns.next()
        state = broker.metadata.topic(topic.name)
        if state is not None:
            identified.append(topic.replaced(topic_id=state.topic_id))
    return identified


async def _by_name(
    broker: GroupContext, group: OffsetFetchRequest.OffsetFetchRequestGroup, turns: Turns
) -> tuple[OffsetFetchRequest.OffsetFetchRequestGroup, list[OffsetFetchResponse.OffsetFetchResponseTopics]]:
    """Return the group with the names of topics that are requested by id, and the answers for ids that are unknown."""
    if group.topics is None:
        return group, []
    unknown = []
    named = []
    for topic in group.topics:
        await turns.next()
        name = broker.metadata.topic_name(topic.topic_id)
        if name is not None:
            named.append(topic.replaced(name=name))
            continue
        partitions = []
        for index in topic.partition_indexes:
            await turns.next()
            partitions.append(
                OffsetFetchResponse.OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=-1,
                    committed_leader_epoch=-1,
                    metadata="",
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                )
            )
        unknown.append(OffsetFetchResponse.OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions))
    return group.replaced(topics=named), unknown


async def _fetch_from_nodes(broker: GroupContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    await asyncio.sleep(0)  # the time limit needs a task
    topics = []
    limit = TimeLimit()
    turns = broker.gate.turns()
    for topic in request.topics or ():
        await turns.next()
        answers = []
        for index in topic.partition_indexes:
            await turns.next()
            answer = OffsetFetchResponse.OffsetFetchResponsePartition(
                partition_index=index, committed_offset=-1, metadata=""
            )
            try:
                offset = None
                if broker.metadata.partition(topic.name, index) is not None:
                    fetch = partial(broker.consumer_offsets.fetch, request.group_id, topic.name, index)
                    offset = await limit.within(fetch)
                if offset is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                answer.committed_offset = offset
            except KafkaError as error:
                answer.error_code = error.code
            answers.append(answer)
        topics.append(OffsetFetchResponse.OffsetFetchResponseTopic(name=topic.name, partitions=answers))
    return OffsetFetchResponse(topics=topics)
