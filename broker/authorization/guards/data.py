"""The guards of records: Produce, ListOffsets, DeleteRecords, OffsetForLeaderEpoch and DescribeProducers.

Kafka: KafkaApis. Fetch checks the partitions of a session itself (broker.fetch), and so do the routes of the fast path
of Produce (broker.net.produce_fast_path).
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from gregor.broker.authorization.guards.common import (
    NAME,
    GuardContext,
    Serve,
    after,
    allows_on_cluster,
    each_topic,
    extended,
    in_steps,
    split,
    split_at_once,
    topic_name,
)
from gregor.broker.authorization.model import Operation, ResourceType
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    ProduceRequest,
    ProduceResponse,
)
from gregor.protocol.records.batch import ATTRIBUTES_AT, MAGIC_AT, RECORD_BATCH_OVERHEAD, TRANSACTIONAL_BIT

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.protocol.turns import Steps

TOPIC_IDS_FROM = 13
"""Version of Produce."""
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


# ---- Produce -----------------------------------------------------------------------------------------------------


def produce(broker: GuardContext, request: ProduceRequest, call: Call, serve: Serve) -> Any:
    """WRITE on each topic; for transactional records also WRITE on the transactional id, else all are refused."""
    if _is_transactional(request):
        name = request.transactional_id
        if name is None or not broker.authorizer.allows(call, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
            if request.acks == 0:
                _fail(call)
                return None
            denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return ProduceResponse(responses=[_refused_records(topic, denied) for topic in request.topic_data])
    allowed, refused = split_at_once(
        broker,
        call,
        Operation.WRITE,
        ResourceType.TOPIC,
        request.topic_data,
        NAME if call.version < TOPIC_IDS_FROM else lambda topic: topic_name(broker, topic.name, topic.topic_id),
    )
    if not refused:
        return serve(request)
    answers = [_refused_records(topic, _DENIED) for topic in refused]
    if not allowed and request.acks != 0:
        return ProduceResponse(responses=answers)
    # The append happens before this returns, as the order of the requests of a connection demands.
    outcome = serve(request.replaced(topic_data=allowed)) if allowed else None
    if request.acks == 0:
        _fail(call)
    return after(outcome, extended(responses=answers))


def _fail(call: Call) -> None:
    call.connection.fail("a Produce request with acks=0 was not authorized, and it has no other answer")


def _is_transactional(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if (
                records is not None
                and len(records) >= RECORD_BATCH_OVERHEAD
                and records[MAGIC_AT] == 2
                and records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT
            ):
                return True
    return False


def _refused_records(topic: ProduceRequest.TopicProduceData, error: ErrorCode) -> ProduceResponse.TopicProduceResponse:
    return ProduceResponse.TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=[
            ProduceResponse.PartitionProduceResponse(index=data.index, error_code=error, base_offset=-1)
            for data in topic.partition_data
        ],
    )


# ---- offsets -----------------------------------------------------------------------------------------------------


@in_steps
def list_offsets(broker: GuardContext, request: ListOffsetsRequest, call: Call, serve: Serve) -> Steps[Any]:
    """DESCRIBE on each topic."""
    allowed, refused = yield from split(broker, call, Operation.DESCRIBE, ResourceType.TOPIC, request.topics, NAME)
    if not refused:
        return serve(request)
    make = ListOffsetsResponse.ListOffsetsPartitionResponse
    answers = yield from each_topic(
        refused,
        attrgetter("partitions"),
        lambda one: make(partition_index=one.partition_index, error_code=_DENIED),
        lambda topic, parts: ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=parts),
    )
    return after(serve(request.replaced(topics=allowed)), extended(topics=answers))


@in_steps
def offset_for_leader_epoch(
    broker: GuardContext, request: OffsetForLeaderEpochRequest, call: Call, serve: Serve
) -> Steps[Any]:
    """CLUSTER_ACTION, as followers have it, or DESCRIBE on each topic."""
    if allows_on_cluster(broker, call, Operation.CLUSTER_ACTION, logs_denial=False):
        return serve(request)
    allowed, refused = yield from split(
        broker, call, Operation.DESCRIBE, ResourceType.TOPIC, request.topics, lambda topic: topic.topic
    )
    if not refused:
        return serve(request)
    answers = yield from each_topic(
        refused,
        attrgetter("partitions"),
        lambda one: OffsetForLeaderEpochResponse.EpochEndOffset(partition=one.partition, error_code=_DENIED),
        lambda topic, parts: OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
            topic=topic.topic, partitions=parts
        ),
    )
    return after(serve(request.replaced(topics=allowed)), extended(topics=answers))


@in_steps
def delete_records(broker: GuardContext, request: DeleteRecordsRequest, call: Call, serve: Serve) -> Steps[Any]:
    """DELETE on each topic."""
    allowed, refused = yield from split(broker, call, Operation.DELETE, ResourceType.TOPIC, request.topics, NAME)
    if not refused:
        return serve(request)
    partitions: dict[str, dict[int, None]] = {}
    for topic in refused:  # the response names each partition once
        if partitions:
            yield None
        partitions.setdefault(topic.name, {}).update(dict.fromkeys(one.partition_index for one in topic.partitions))
    make = DeleteRecordsResponse.DeleteRecordsPartitionResult
    answers = yield from each_topic(
        partitions,
        partitions.__getitem__,
        lambda index: make(partition_index=index, low_watermark=-1, error_code=_DENIED),
        lambda name, parts: DeleteRecordsResponse.DeleteRecordsTopicResult(name=name, partitions=parts),
    )
    return after(serve(request.replaced(topics=allowed)), extended(topics=answers))


@in_steps
def describe_producers(broker: GuardContext, request: DescribeProducersRequest, call: Call, serve: Serve) -> Steps[Any]:
    """READ on each topic."""
    allowed, refused = yield from split(broker, call, Operation.READ, ResourceType.TOPIC, request.topics, NAME)
    if not refused:
        return serve(request)
    answers = yield from each_topic(
        refused,
        attrgetter("partition_indexes"),
        lambda index: DescribeProducersResponse.PartitionResponse(partition_index=index, error_code=_DENIED),
        lambda topic, parts: DescribeProducersResponse.TopicResponse(name=topic.name, partitions=parts),
    )
    return after(serve(request.replaced(topics=allowed)), extended(topics=answers))
