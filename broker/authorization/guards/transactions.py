"""The guards of transactions and coordinators (keys 10, 22, 24 to 27, 65, 66).

WRITE on the transactional id is its use, DESCRIBE its view. AddPartitionsToTxn from version 4 on and WriteTxnMarkers
are requests among brokers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from gregor.broker.authorization.guards.common import (
    GuardContext,
    Serve,
    after,
    after_in_steps,
    allowed_names,
    allows_on_cluster,
    each,
    each_topic,
    extended,
    in_steps,
    split,
)
from gregor.broker.authorization.guards.groups import may
from gregor.broker.authorization.model import Operation, ResourceType
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from gregor.protocol.topic_names import INTERNAL_TOPICS
from gregor.protocol.turns import ITEMS_PER_STEP

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.protocol.turns import Steps

MANY_KEYS_FROM = 4
SHARE_KEYS_FROM = 6
AMONG_BROKERS_FROM = 4
"""Version of AddPartitionsToTxn from which on brokers send it."""
GROUP, TRANSACTION, SHARE = 0, 1, 2
"""Types of coordinators."""
DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

_Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
_TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult


def may_write(broker: GuardContext, call: Call, transactional_id: str) -> bool:
    return broker.authorizer.allows(call, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


@in_steps
def find_coordinator(broker: GuardContext, request: FindCoordinatorRequest, call: Call, serve: Serve) -> Steps[Any]:
    """DESCRIBE on each group or transactional id; CLUSTER_ACTION for the coordinators of share groups' state."""
    many = call.version >= MANY_KEYS_FROM
    keys = request.coordinator_keys if many else [request.key]
    if request.key_type == GROUP:
        resource, error = ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif request.key_type == TRANSACTION:
        resource, error = ResourceType.TRANSACTIONAL_ID, DENIED
    elif request.key_type == SHARE and call.version >= SHARE_KEYS_FROM:
        if allows_on_cluster(broker, call, Operation.CLUSTER_ACTION):
            return serve(request)
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return FindCoordinatorResponse(coordinators=(yield from each(keys, partial(_no_coordinator, error))))
    else:
        return serve(request)
    allowed, refused = yield from split(broker, call, Operation.DESCRIBE, resource, keys, str)
    if not refused:
        return serve(request)
    if not many:
        return FindCoordinatorResponse(error_code=error, error_message=error.name, node_id=-1, host="", port=-1)
    answers = yield from each(refused, partial(_no_coordinator, error))
    if not allowed:
        return FindCoordinatorResponse(coordinators=answers)
    return after(serve(request.replaced(coordinator_keys=allowed)), extended(coordinators=answers))


def _no_coordinator(error: ErrorCode, key: str) -> FindCoordinatorResponse.Coordinator:
    return FindCoordinatorResponse.Coordinator(
        key=key, error_code=error, error_message=error.name, node_id=-1, host="", port=-1
    )


def init_producer_id(broker: GuardContext, request: InitProducerIdRequest, call: Call, serve: Serve) -> Any:
    """WRITE on the transactional id; an idempotent producer needs WRITE on some topic (KIP-679), or
    IDEMPOTENT_WRITE."""
    name = request.transactional_id
    if name is not None:
        if may_write(broker, call, name):
            return serve(request)
        error = DENIED
    elif allows_on_cluster(broker, call, Operation.IDEMPOTENT_WRITE, logs_denial=False) or broker.authorizer.allows_any(
        call, Operation.WRITE, ResourceType.TOPIC
    ):
        return serve(request)
    else:
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)


@in_steps
def add_partitions_to_txn(
    broker: GuardContext, request: AddPartitionsToTxnRequest, call: Call, serve: Serve
) -> Steps[Any]:
    """WRITE on the transactional id, and on each topic; internal topics are denied to clients. One partition that
    cannot be added keeps all others from being added."""
    if call.version >= AMONG_BROKERS_FROM:
        if allows_on_cluster(broker, call, Operation.CLUSTER_ACTION):
            return serve(request)
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    topics = request.v3_and_below_topics
    if not may_write(broker, call, request.v3_and_below_transactional_id):
        results = yield from each(topics, lambda topic: _results(topic, [DENIED] * len(topic.partitions)))
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    names = {topic.name for topic in topics if topic.name not in INTERNAL_TOPICS}
    allowed = yield from allowed_names(broker, call, Operation.WRITE, ResourceType.TOPIC, names)
    if all(topic.name in allowed for topic in topics):
        return serve(request)
    results = yield from each(
        topics, lambda topic: _results(topic, _not_added(broker, topic, is_allowed=topic.name in allowed))
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _not_added(broker: GuardContext, topic: _Topic, *, is_allowed: bool) -> Iterable[ErrorCode]:
    if not is_allowed:
        return [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * len(topic.partitions)
    count = broker.metadata.partition_count(topic.name)
    return [
        ErrorCode.OPERATION_NOT_ATTEMPTED if 0 <= index < count else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for index in topic.partitions
    ]


def _results(topic: _Topic, errors: Iterable[ErrorCode]) -> _TopicResult:
    return _TopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                partition_index=index, partition_error_code=error
            )
            for index, error in zip(topic.partitions, errors, strict=True)
        ],
    )


def add_offsets_to_txn(broker: GuardContext, request: AddOffsetsToTxnRequest, call: Call, serve: Serve) -> Any:
    """WRITE on the transactional id, READ on the group."""
    if not may_write(broker, call, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=DENIED)
    if not may(broker, call, Operation.READ, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return serve(request)


def end_txn(broker: GuardContext, request: EndTxnRequest, call: Call, serve: Serve) -> Any:
    if may_write(broker, call, request.transactional_id):
        return serve(request)
    return EndTxnResponse(error_code=DENIED)


@in_steps
def write_txn_markers(broker: GuardContext, request: WriteTxnMarkersRequest, call: Call, serve: Serve) -> Steps[Any]:
    """ALTER on the cluster, for tools that end hanging transactions (KIP-664), or CLUSTER_ACTION."""
    if allows_on_cluster(broker, call, Operation.ALTER, logs_denial=False) or allows_on_cluster(
        broker, call, Operation.CLUSTER_ACTION
    ):
        return serve(request)
    make = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult
    markers = []
    for marker in request.markers:
        topics = yield from each_topic(
            marker.topics,
            attrgetter("partition_indexes"),
            lambda index: make(partition_index=index, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            lambda topic, parts: WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                name=topic.name, partitions=parts
            ),
        )
        markers.append(WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        if not len(markers) % ITEMS_PER_STEP:
            yield None
    return WriteTxnMarkersResponse(markers=markers)


@in_steps
def describe_transactions(
    broker: GuardContext, request: DescribeTransactionsRequest, call: Call, serve: Serve
) -> Steps[Any]:
    """DESCRIBE on each transactional id; the topics of a transaction are those that the client may describe."""

    def hide(response: DescribeTransactionsResponse) -> Steps[DescribeTransactionsResponse]:
        states = response.transaction_states
        names = {topic.topic for state in states for topic in state.topics}
        if names:
            visible = yield from allowed_names(broker, call, Operation.DESCRIBE, ResourceType.TOPIC, names)
            states = yield from each(
                states,
                lambda state: state.replaced(topics=[topic for topic in state.topics if topic.topic in visible]),
            )
        return response.replaced(transaction_states=[*states, *answers])

    allowed, refused = yield from split(
        broker, call, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, request.transactional_ids, str
    )
    make = DescribeTransactionsResponse.TransactionState
    answers = yield from each(refused, lambda name: make(transactional_id=name, error_code=DENIED))
    if refused and not allowed:
        return DescribeTransactionsResponse(transaction_states=answers)
    return after_in_steps(broker, serve(request.replaced(transactional_ids=allowed) if refused else request), hide)


def list_transactions(broker: GuardContext, request: ListTransactionsRequest, call: Call, serve: Serve) -> Any:
    """Omit the transactional ids that the client may not describe."""

    def hide(response: ListTransactionsResponse) -> Steps[ListTransactionsResponse]:
        states = response.transaction_states
        names = {state.transactional_id for state in states}
        visible = yield from allowed_names(broker, call, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, names)
        return response.replaced(transaction_states=[state for state in states if state.transactional_id in visible])

    return after_in_steps(broker, serve(request), hide)
