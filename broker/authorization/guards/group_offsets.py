"""The guards of committed offsets: OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit (keys 8, 9, 28, 47)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from gregor.broker.authorization.guards.common import (
    NAME,
    GuardContext,
    Serve,
    after,
    after_in_steps,
    each,
    each_topic,
    extended,
    in_steps,
    split,
    topic_name,
)
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
    from gregor.protocol.turns import Steps

_TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_ERROR_FROM = 2
"""Version of OffsetFetch with an error for the whole group; before it, each partition has the error."""
MANY_GROUPS_FROM = 8


# ---- OffsetCommit and TxnOffsetCommit ----------------------------------------------------------------------------


@in_steps
def offset_commit(broker: GuardContext, request: OffsetCommitRequest, call: Call, serve: Serve) -> Steps[Any]:
    """READ on the group, and on each topic."""
    if not may(broker, call, Operation.READ, request.group_id):
        topics = yield from _refused_commits(OffsetCommitResponse, request.topics, DENIED)
        return OffsetCommitResponse(topics=topics)
    return (yield from _commit(broker, request, call, serve, OffsetCommitResponse))


@in_steps
def txn_offset_commit(broker: GuardContext, request: TxnOffsetCommitRequest, call: Call, serve: Serve) -> Steps[Any]:
    """WRITE on the transactional id, READ on the group, and on each topic."""
    error = ErrorCode.NONE
    transactional_id = request.transactional_id
    if not broker.authorizer.allows(call, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not may(broker, call, Operation.READ, request.group_id):
        error = DENIED
    if error:
        topics = yield from _refused_commits(TxnOffsetCommitResponse, request.topics, error)
        return TxnOffsetCommitResponse(topics=topics)
    return (yield from _commit(broker, request, call, serve, TxnOffsetCommitResponse))


def _commit(broker: GuardContext, request: Any, call: Call, serve: Serve, response_class: Any) -> Steps[Any]:
    allowed, refused = yield from split(
        broker,
        call,
        Operation.READ,
        ResourceType.TOPIC,
        request.topics,
        lambda topic: topic_name(broker, topic.name, topic.topic_id),
    )
    if not refused:
        return serve(request)
    answers = yield from _refused_commits(response_class, refused, _TOPIC_DENIED)
    if not allowed:
        return response_class(topics=answers)
    return after(serve(request.replaced(topics=allowed)), extended(topics=answers))


def _refused_commits(response_class: Any, topics: Iterable[Any], error: ErrorCode) -> Steps[list[Any]]:
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
    return each_topic(
        topics,
        attrgetter("partitions"),
        lambda one: make_partition(partition_index=one.partition_index, error_code=error),
        lambda topic, parts: make_topic(name=topic.name, topic_id=topic.topic_id, partitions=parts),
    )


# ---- OffsetFetch -------------------------------------------------------------------------------------------------


@in_steps
def offset_fetch(broker: GuardContext, request: OffsetFetchRequest, call: Call, serve: Serve) -> Steps[Any]:
    """DESCRIBE on each group, and on each topic; a request for all topics of a group is answered for the visible
    ones."""
    if call.version < MANY_GROUPS_FROM:
        return (yield from _fetch_of_one(broker, request, call, serve))
    allowed, refused = yield from split(
        broker, call, Operation.DESCRIBE, ResourceType.GROUP, request.groups, lambda group: group.group_id
    )
    make = OffsetFetchResponse.OffsetFetchResponseGroup
    answers = yield from each(refused, lambda group: make(group_id=group.group_id, error_code=DENIED))
    if refused and not allowed:
        return OffsetFetchResponse(groups=answers)
    groups: list[Any] = []
    refused_topics: list[list[OffsetFetchResponse.OffsetFetchResponseTopics] | None] = []
    """Of each group; None: the request is about all of its topics."""
    for group in allowed:
        if groups:
            yield None
        if group.topics is None:
            groups.append(group)
            refused_topics.append(None)
            continue
        topics, hidden = yield from _visible(broker, call, group.topics)
        groups.append(group.replaced(topics=topics) if hidden else group)
        refused_topics.append((yield from _refused_topics(hidden)) if hidden else [])

    def complete(response: OffsetFetchResponse) -> Steps[OffsetFetchResponse]:
        completed: list[Any] = []
        for group, refused_of_it in zip(response.groups, refused_topics, strict=True):
            if completed:
                yield None
            if group.error_code:
                completed.append(group)
            elif refused_of_it is None:
                visible, _ = yield from _visible(broker, call, group.topics)
                completed.append(group.replaced(topics=visible))
            else:
                completed.append(group.replaced(topics=[*group.topics, *refused_of_it]))
        return response.replaced(groups=[*completed, *answers])

    return after_in_steps(broker, serve(request.replaced(groups=groups)), complete)


def _visible(broker: GuardContext, call: Call, topics: Sequence[Any]) -> Steps[tuple[Sequence[Any], list[Any]]]:
    return split(
        broker,
        call,
        Operation.DESCRIBE,
        ResourceType.TOPIC,
        topics,
        lambda topic: topic.name or topic_name(broker, topic.name, topic.topic_id),
    )


def _refused_topics(topics: Iterable[Any]) -> Steps[list[OffsetFetchResponse.OffsetFetchResponseTopics]]:
    return each_topic(
        topics,
        attrgetter("partition_indexes"),
        lambda index: OffsetFetchResponse.OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=-1,
            committed_leader_epoch=-1,
            metadata="",
            error_code=_TOPIC_DENIED,
        ),
        lambda topic, parts: OffsetFetchResponse.OffsetFetchResponseTopics(
            name=topic.name, topic_id=topic.topic_id, partitions=parts
        ),
    )


def _fetch_of_one(broker: GuardContext, request: OffsetFetchRequest, call: Call, serve: Serve) -> Steps[Any]:
    if not may(broker, call, Operation.DESCRIBE, request.group_id):
        if call.version >= GROUP_ERROR_FROM:
            return OffsetFetchResponse(error_code=DENIED)
        topics = yield from _old_refused_topics(request.topics or (), DENIED)
        return OffsetFetchResponse(topics=topics)
    if request.topics is None:

        def hide(response: OffsetFetchResponse) -> Steps[OffsetFetchResponse]:
            visible, _ = yield from _visible_names(broker, call, response.topics)
            return response.replaced(topics=list(visible))

        return after_in_steps(broker, serve(request), hide)
    allowed, refused = yield from _visible_names(broker, call, request.topics)
    if not refused:
        return serve(request)
    answers = yield from _old_refused_topics(refused, _TOPIC_DENIED)
    if not allowed:
        return OffsetFetchResponse(topics=answers)

    return after(serve(request.replaced(topics=allowed)), _with_topics(answers))


def _with_topics(answers: Sequence[Any]) -> Callable[[Any], Any]:
    """Return the change that adds the answers of topics to a response, unless it is an error as a whole."""
    change = extended(topics=answers)
    return lambda response: response if response.error_code else change(response)


def _visible_names(broker: GuardContext, call: Call, topics: Sequence[Any]) -> Steps[tuple[Sequence[Any], list[Any]]]:
    return split(broker, call, Operation.DESCRIBE, ResourceType.TOPIC, topics, NAME)


def _old_refused_topics(
    topics: Iterable[Any], error: ErrorCode
) -> Steps[list[OffsetFetchResponse.OffsetFetchResponseTopic]]:
    make = OffsetFetchResponse.OffsetFetchResponsePartition
    return each_topic(
        topics,
        attrgetter("partition_indexes"),
        lambda index: make(partition_index=index, committed_offset=-1, metadata="", error_code=error),
        lambda topic, parts: OffsetFetchResponse.OffsetFetchResponseTopic(name=topic.name, partitions=parts),
    )


# ---- OffsetDelete ------------------------------------------------------------------------------------------------


@in_steps
def offset_delete(broker: GuardContext, request: OffsetDeleteRequest, call: Call, serve: Serve) -> Steps[Any]:
    """DELETE on the group, READ on each topic."""
    if not may(broker, call, Operation.DELETE, request.group_id):
        return OffsetDeleteResponse(error_code=DENIED)
    allowed, refused = yield from split(broker, call, Operation.READ, ResourceType.TOPIC, request.topics, NAME)
    if not refused:
        return serve(request)
    make = OffsetDeleteResponse.OffsetDeleteResponsePartition
    answers = yield from each_topic(
        refused,
        attrgetter("partitions"),
        lambda one: make(partition_index=one.partition_index, error_code=_TOPIC_DENIED),
        lambda topic, parts: OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=parts),
    )

    return after(serve(request.replaced(topics=allowed)), _with_topics(answers))
