"""OffsetCommit (key 8), versions 0 to 10: a group's positions, stored by its coordinator.

- 0 stored as nodes of the metadata tree, beside those of the coordinator (store.consumer_offsets); 1 generation and
  member, a commit time for each partition; 2 a retention time instead; 3 throttle time; 5 no retention time any more;
  6 leader epochs; 7 static members; 8 flexible; 10 topic ids.
- Positions of partitions that do not exist are refused one by one, the others stored.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from gregor.broker.answers.unknown_partitions import separate_unknown, with_refused
from gregor.broker.registry import Numbers, handles
from gregor.coordinator.group.commits.repeated import MAX_PARTITIONS
from gregor.coordinator.group.pieces import is_one_piece
from gregor.coordinator.group.records import java_length
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import OffsetCommitRequest, OffsetCommitResponse
from gregor.protocol.turns import ITEMS_PER_STEP
from gregor.replication.store.time_limit import TimeLimit

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from gregor.broker.context import Call, GroupContext
    from gregor.broker.registry import NumberedRenewal
    from gregor.protocol.deferred import Deferred

COORDINATOR_FROM = 1
TOPIC_IDS_FROM = 10
MAX_SHORT_TOPICS = 4
"""Of a response that is encoded at once."""


def _is_short(response: OffsetCommitResponse) -> bool:
    topics = response.topics
    return len(topics) <= MAX_SHORT_TOPICS and all(len(topic.partitions) <= ITEMS_PER_STEP for topic in topics)


def _partitions(request: OffsetCommitRequest) -> list[OffsetCommitRequest.OffsetCommitRequestPartition]:
    return [partition for topic in request.topics for partition in topic.partitions]


def _renewal(
    broker: GroupContext, request: OffsetCommitRequest, call: Call, response: OffsetCommitResponse
) -> NumberedRenewal | None:
    if any(part.error_code for topic in response.topics for part in topic.partitions):
        return None
    version = call.version
    named = _with_names(broker, request, version)
    commit = None if named is None else broker.groups.repeated_offset_commit(named, version)
    if commit is None:
        return None
    return lambda offsets: _all_exist(broker, request, version) and commit(offsets)


@handles(
    ApiKey.OFFSET_COMMIT,
    0,
    10,
    changes=True,
    eager=True,
    is_short=_is_short,
    numbers=Numbers(_partitions, "committed_offset", MAX_PARTITIONS, _renewal),
)
def offset_commit(
    broker: GroupContext, request: OffsetCommitRequest, call: Call
) -> Deferred[OffsetCommitResponse] | Awaitable[OffsetCommitResponse]:
    version = call.version
    if version >= COORDINATOR_FROM and is_one_piece(request) and _all_exist(broker, request, version):
        named = _with_names(broker, request, version)
        if named is not None:
            return broker.groups.begin_offset_commit(named, version)
    return _commit(broker, request, call)


def _with_names(broker: GroupContext, request: OffsetCommitRequest, version: int) -> OffsetCommitRequest | None:
    """Return the request with the names of its topics, None if one has none: in v10 it has their ids alone."""
    if version < TOPIC_IDS_FROM:
        return request
    topics = []
    for topic in request.topics:
        name = broker.metadata.topic_name(topic.topic_id)
        if name is None:
            return None
        topics.append(topic.replaced(name=name))
    return request.replaced(topics=topics)


def _all_exist(broker: GroupContext, request: OffsetCommitRequest, version: int) -> bool:
    """Return whether all partitions of a request exist."""
    metadata = broker.metadata
    for topic in request.topics:
        name = topic.name if version < TOPIC_IDS_FROM else metadata.topic_name(topic.topic_id)
        if name is None:
            return False
        count = metadata.partition_count(name)
        for part in topic.partitions:
            if not 0 <= part.partition_index < count:
                return False
    return True


async def _commit(broker: GroupContext, request: OffsetCommitRequest, call: Call) -> OffsetCommitResponse:
    known, refused = await separate_unknown(
        request.topics,
        broker.metadata,
        broker.gate.turns(),
        by_id=call.version >= TOPIC_IDS_FROM,
        topic_answer=OffsetCommitResponse.OffsetCommitResponseTopic,
        partition_answer=OffsetCommitResponse.OffsetCommitResponsePartition,
    )
    if not known and refused:
        return OffsetCommitResponse(topics=refused)
    request = request.replaced(topics=known)
    if call.version < COORDINATOR_FROM:
        response = await _commit_to_nodes(broker, request)
    else:
        response = await broker.groups.offset_commit(request, call.version)
    answers = [_identified(broker, answered) for answered in response.topics]
    return response.replaced(topics=with_refused(answers, refused))


def _identified(
    broker: GroupContext, answered: OffsetCommitResponse.OffsetCommitResponseTopic
) -> OffsetCommitResponse.OffsetCommitResponseTopic:
    """Return the answer with the id of its topic, if the topic exists."""
    state = broker.metadata.topic(answered.name)
    return answered if state is None else answered.replaced(topic_id=state.topic_id)


async def _commit_to_nodes(broker: GroupContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    await asyncio.sleep(0)  # the time limit needs a task
    topics = []
    limit = TimeLimit()
    for topic in request.topics:
        answers = []
        for part in topic.partitions:
            error = ErrorCode.NONE
            if java_length(part.committed_metadata or "") > broker.config["offset.metadata.max.bytes"]:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE  # though the node does not store it
            else:
                try:
                    partition = request.group_id, topic.name, part.partition_index
                    await limit.within(partial(broker.consumer_offsets.commit, *partition, part.committed_offset))
                except KafkaError as refusal:
                    error = refusal.code
            answers.append(
                OffsetCommitResponse.OffsetCommitResponsePartition(
                    partition_index=part.partition_index, error_code=error
                )
            )
        topics.append(OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, partitions=answers))
    return OffsetCommitResponse(topics=topics)
