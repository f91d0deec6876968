"""The guards of the life of topics: CreateTopics, DeleteTopics and CreatePartitions (keys 19, 20, 37).

Kafka: ControllerApis. A topic that is named more than once is refused by the plain handler, whatever the rights are.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from gregor.broker.authorization.guards.common import (
    GuardContext,
    Serve,
    after,
    after_in_steps,
    allowed_names,
    allows_on_cluster,
    by_name,
    each,
    extended,
    in_steps,
)
from gregor.broker.authorization.model import Operation, ResourceType
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from gregor.protocol.turns import ITEMS_PER_STEP

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.protocol.turns import Steps

_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
TEXT = "Authorization failed."
IDS_FROM = 6
"""Version of DeleteTopics that may name topics by id."""

_Deleted = DeleteTopicsResponse.DeletableTopicResult


def _named_once(names: list[str]) -> set[str]:
    return {name for name, times in Counter(names).items() if times == 1}


@in_steps
def create_topics(broker: GuardContext, request: CreateTopicsRequest, call: Call, serve: Serve) -> Steps[Any]:
    """CREATE on the cluster or on each topic. The response has the settings of a topic where the client has
    DESCRIBE_CONFIGS on it."""
    once = _named_once(by_name(request.topics))
    denied: set[str] = set()
    if not allows_on_cluster(broker, call, Operation.CREATE, logs_denial=False):
        denied = once - (yield from allowed_names(broker, call, Operation.CREATE, ResourceType.TOPIC, once))
    make = CreateTopicsResponse.CreatableTopicResult
    answers = yield from each(sorted(denied), lambda name: make(name=name, error_code=_DENIED, error_message=TEXT))

    def hide(response: CreateTopicsResponse) -> Steps[CreateTopicsResponse]:
        created = {topic.name for topic in response.topics if not topic.error_code}
        shown = yield from allowed_names(
            broker, call, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, created, logs_denial=False
        )
        hidden = {"topic_config_error_code": _DENIED, "num_partitions": -1, "replication_factor": -1, "configs": []}
        topics = yield from each(
            response.topics,
            lambda topic: topic.replaced(**hidden) if topic.name in created and topic.name not in shown else topic,
        )
        return response.replaced(topics=[*topics, *answers])

    if denied:
        request = request.replaced(topics=[topic for topic in request.topics if topic.name not in denied])
        if not request.topics:
            return CreateTopicsResponse(topics=answers)
    return after_in_steps(broker, serve(request), hide)


@in_steps
def delete_topics(broker: GuardContext, request: DeleteTopicsRequest, call: Call, serve: Serve) -> Steps[Any]:
    """DELETE on the cluster or on each topic. The name of a topic that is named by its id, and the absence of one that
    is named by its name, are shown with DESCRIBE."""
    if allows_on_cluster(broker, call, Operation.DELETE, logs_denial=False):
        return serve(request)
    left: list[Any]
    if call.version < IDS_FROM:
        names = _named_once(request.topic_names)
        refused = yield from _refused(broker, call, {name: (name, ZERO_UUID) for name in names})
        if not refused:
            return serve(request)
        left = [name for name in request.topic_names if name not in refused]
        request = request.replaced(topic_names=left)
    else:
        named = {}
        times = Counter((topic.name, topic.topic_id) for topic in request.topics)
        for position, ((name, topic_id), count) in enumerate(times.items(), 1):
            if not position % ITEMS_PER_STEP:
                yield None
            if count > 1 or (name is not None) == (topic_id != ZERO_UUID):
                continue  # INVALID_REQUEST
            known = name if name is not None else broker.metadata.topic_name(topic_id)
            if known is not None:
                named[name, topic_id] = known, topic_id
        refused = yield from _refused(broker, call, named)
        if not refused:
            return serve(request)
        left = [topic for topic in request.topics if (topic.name, topic.topic_id) not in refused]
        request = request.replaced(topics=left)
    answers = list(refused.values())
    if not left:
        return DeleteTopicsResponse(responses=answers)
    return after(serve(request), extended(responses=answers))


def _refused(broker: GuardContext, call: Call, named: dict[Any, tuple[str, bytes]]) -> Steps[dict[Any, _Deleted]]:
    """Return the answers for the topics that may not be deleted; `named` has name and requested id of each one."""
    names = {name for name, _ in named.values()}
    describable = yield from allowed_names(broker, call, Operation.DESCRIBE, ResourceType.TOPIC, names)
    deletable = yield from allowed_names(broker, call, Operation.DELETE, ResourceType.TOPIC, names)
    refused: dict[Any, _Deleted] = {}
    for key, (name, topic_id) in named.items():
        by_id = topic_id != ZERO_UUID
        if name in describable:
            if name in deletable or broker.metadata.topic(name) is None:
                continue
        elif by_id and name in deletable:
            continue
        shown = name if not by_id or name in describable else None
        refused[key] = _Deleted(name=shown, topic_id=topic_id, error_code=_DENIED, error_message=TEXT)
        if not len(refused) % ITEMS_PER_STEP:
            yield None
    return refused


@in_steps
def create_partitions(broker: GuardContext, request: CreatePartitionsRequest, call: Call, serve: Serve) -> Steps[Any]:
    """ALTER on each topic."""
    once = _named_once(by_name(request.topics))
    denied = once - (yield from allowed_names(broker, call, Operation.ALTER, ResourceType.TOPIC, once))
    if not denied:
        return serve(request)
    make = CreatePartitionsResponse.CreatePartitionsTopicResult
    answers = yield from each(sorted(denied), lambda name: make(name=name, error_code=_DENIED))
    left = [topic for topic in request.topics if topic.name not in denied]
    if not left:
        return CreatePartitionsResponse(results=answers)
    return after(serve(request.replaced(topics=left)), extended(results=answers))
