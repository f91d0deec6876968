"""The guards of committed offsets: OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit (keys 8, 9, 28, 47)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gregor.broker.authorization.guards.common import NAME, GuardContext, Serve, after, extended, split, topic_name
from gregor.broker.authorization.guards.groups import DENIED, may
from gregor.broker.authorization.model import Operation, ResourceType
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from gregor.broker.context import Call

_TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_ERROR_FROM = 2
"""Version of OffsetFetch with an error for the whole group; before it, each partition has the error."""
MANY_GROUPS_FROM = 8


# ---- OffsetCommit and TxnOffsetCommit ----------------------------------------------------------------------------


def offset_commit(broker: GuardContext, request: OffsetCommitRequest, call: Call, serve: Serve) -> Any:
    """READ on the group, and on each topic."""
    if not may(broker, call, Operation.READ, request.group_id):
        return OffsetCommitResponse(topics=_refused_commits(OffsetCommitResponse, request.topics, DENIED))
    return _commit(broker, request, call, serve, OffsetCommitResponse)


def txn_offset_commit(broker: GuardContext, request: TxnOffsetCommitRequest, call: Call, serve: Serve) -> Any:
    """WRITE on the transactional id, READ on the group, and on each topic."""
    error = ErrorCode.NONE
    transactional_id = request.transactional_id
    if not broker.authorizer.allows(call, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not may(broker, call, Operation.READ, request.group_id):
        error = DENIED
    if error:
        return TxnOffsetCommitResponse(topics=_refused_commits(TxnOffsetCommitResponse, request.topics, error))
    return _commit(broker, request, call, serve, TxnOffsetCommitResponse)


def _commit(broker: GuardContext, request: Any, call: Call, serve: Serve, response_class: Any) -> Any:
    allowed, refused = split(
        broker,
        call,
        Operation.READ,
        ResourceType.TOPIC,
        request.topics,
        lambda topic: topic_name(broker, topic.name, topic.topic_id),
    )
    if not refused:
        return serve(request)
    answers = _refused_commits(response_class, refused, _TOPIC_DENIED)
    if not allowed:
        return response_class(topics=answers)
    return after(serve(request.replaced(topics=allowed)), extended(topics=answers))


def _refused_commits(response_class: Any, topics: Iterable[Any], error: ErrorCode) -> list[Any]:
    make_topic, make_partition = {
        OffsetCommitResponse: (
            OffsetCommitResponse.OffsetCommitResponseTopic,
            OffsetCommitResponse.OffsetCommitResponsePartition,
        ),
        TxnOffsetCommitResponse: (
            TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic,
            TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition,
        ),
    }[response_class]
    return [
        make_topic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                make_partition(partition_index=one.partition_index, error_code=error) for one in topic.partitions
            ],
        )
        for topic in topics
    ]


# ---- OffsetFetch -------------------------------------------------------------------------------------------------


def offset_fetch(broker: GuardContext, request: OffsetFetchRequest, call: Call, serve: Serve) -> Any:
    """DESCRIBE on each group, and on each topic; a request for all topics of a group is answered for the visible
    ones."""
    if call.version < MANY_GROUPS_FROM:
        return _fetch_of_one(broker, request, call, serve)
    allowed, refused = split(
        broker, call, Operation.DESCRIBE, ResourceType.GROUP, request.groups, lambda group: group.group_id
    )
    answers = [
        OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id, error_code=DENIED) for group in refused
    ]
    if refused and not allowed:
        return OffsetFetchResponse(groups=answers)
    groups = []
    refused_topics: list[list[OffsetFetchResponse.OffsetFetchResponseTopics] | None] = []
    """Of each group; None: the request is about all of its topics."""
    for group in allowed:
        if group.topics is None:
            groups.append(group)
            refused_topics.append(None)
            continue
        topics, hidden = _visible(broker, call, group.topics)
        groups.append(group.replaced(topics=topics) if hidden else group)
        refused_topics.append([_refused_topic(topic) for topic in hidden])

    def completed(
        group: OffsetFetchResponse.OffsetFetchResponseGroup,
        refused_of_it: list[OffsetFetchResponse.OffsetFetchResponseTopics] | None,
    ) -> OffsetFetchResponse.OffsetFetchResponseGroup:
        if group.error_code:
            return group
        if refused_of_it is None:
            return group.replaced(topics=_visible(broker, call, group.topics)[0])
        return group.replaced(topics=[*group.topics, *refused_of_it])

    def complete(response: OffsetFetchResponse) -> OffsetFetchResponse:
        return response.replaced(groups=[*map(completed, response.groups, refused_topics), *answers])

    return after(serve(request.replaced(groups=groups)), complete)


def _visible(broker: GuardContext, call: Call, topics: Sequence[Any]) -> tuple[Sequence[Any], list[Any]]:
    return split(
        broker,
        call,
        Operation.DESCRIBE,
        ResourceType.TOPIC,
        topics,
        lambda topic: topic.name or topic_name(broker, topic.name, topic.topic_id),
    )


def _refused_topic(topic: Any) -> OffsetFetchResponse.OffsetFetchResponseTopics:
    return OffsetFetchResponse.OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponse.OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=-1,
                committed_leader_epoch=-1,
                metadata="",
                error_code=_TOPIC_DENIED,
            )
            for index in topic.partition_indexes
        ],
    )


def _fetch_of_one(broker: GuardContext, request: OffsetFetchRequest, call: Call, serve: Serve) -> Any:
    if not may(broker, call, Operation.DESCRIBE, request.group_id):
        if call.version >= GROUP_ERROR_FROM:
            return OffsetFetchResponse(error_code=DENIED)
        return OffsetFetchResponse(topics=[_old_refused_topic(topic, DENIED) for topic in request.topics or ()])
    if request.topics is None:

        def hide(response: OffsetFetchResponse) -> OffsetFetchResponse:
            return response.replaced(topics=list(_visible_names(broker, call, response.topics)[0]))

        return after(serve(request), hide)
    allowed, refused = _visible_names(broker, call, request.topics)
    if not refused:
        return serve(request)
    answers = [_old_refused_topic(topic, _TOPIC_DENIED) for topic in refused]
    if not allowed:
        return OffsetFetchResponse(topics=answers)

    return after(serve(request.replaced(topics=allowed)), _with_topics(answers))


def _with_topics(answers: Sequence[Any]) -> Callable[[Any], Any]:
    """Return the change that adds the answers of topics to a response, unless it is an error as a whole."""
    change = extended(topics=answers)
    return lambda response: response if response.error_code else change(response)


def _visible_names(broker: GuardContext, call: Call, topics: Sequence[Any]) -> tuple[Sequence[Any], list[Any]]:
    return split(broker, call, Operation.DESCRIBE, ResourceType.TOPIC, topics, NAME)


def _old_refused_topic(topic: Any, error: ErrorCode) -> OffsetFetchResponse.OffsetFetchResponseTopic:
    return OffsetFetchResponse.OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponse.OffsetFetchResponsePartition(
                partition_index=index, committed_offset=-1, metadata="", error_code=error
            )
            for index in topic.partition_indexes
        ],
    )


# ---- OffsetDelete ------------------------------------------------------------------------------------------------


def offset_delete(broker: GuardContext, request: OffsetDeleteRequest, call: Call, serve: Serve) -> Any:
    """DELETE on the group, READ on each topic."""
    if not may(broker, call, Operation.DELETE, request.group_id):
        return OffsetDeleteResponse(error_code=DENIED)
    allowed, refused = split(broker, call, Operation.READ, ResourceType.TOPIC, request.topics, NAME)
    if not refused:
        return serve(request)
    answers = [
        OffsetDeleteResponse.OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponse.OffsetDeleteResponsePartition(
                    partition_index=one.partition_index, error_code=_TOPIC_DENIED
                )
                for one in topic.partitions
            ],
        )
        for topic in refused
    ]

    return after(serve(request.replaced(topics=allowed)), _with_topics(answers))
