"""The guards of records: Produce, ListOffsets, DeleteRecords, OffsetForLeaderEpoch and DescribeProducers.

Kafka: KafkaApis. Fetch checks the partitions of a session itself (broker.fetch), and so do the routes of the fast path
of Produce (broker.net.produce_fast_path).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gregor.broker.authorization.guards.common import (
    NAME,
    GuardContext,
    Serve,
    after,
    allows_on_cluster,
    extended,
    split,
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
    allowed, refused = split(
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


def list_offsets(broker: GuardContext, request: ListOffsetsRequest, call: Call, serve: Serve) -> Any:
    """DESCRIBE on each topic."""
    allowed, refused = split(broker, call, Operation.DESCRIBE, ResourceType.TOPIC, request.topics, NAME)
    if not refused:
        return serve(request)
    make = ListOffsetsResponse.ListOffsetsPartitionResponse
    answers = [
        ListOffsetsResponse.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[make(partition_index=one.partition_index, error_code=_DENIED) for one in topic.partitions],
        )
        for topic in refused
    ]
    return after(serve(request.replaced(topics=allowed)), extended(topics=answers))


def offset_for_leader_epoch(
    broker: GuardContext, request: OffsetForLeaderEpochRequest, call: Call, serve: Serve
) -> Any:
    """CLUSTER_ACTION, as followers have it, or DESCRIBE on each topic."""
    if allows_on_cluster(broker, call, Operation.CLUSTER_ACTION, logs_denial=False):
        return serve(request)
    allowed, refused = split(
        broker, call, Operation.DESCRIBE, ResourceType.TOPIC, request.topics, lambda topic: topic.topic
    )
    if not refused:
        return serve(request)
    answers = [
        OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[
                OffsetForLeaderEpochResponse.EpochEndOffset(partition=one.partition, error_code=_DENIED)
                for one in topic.partitions
            ],
        )
        for topic in refused
    ]
    return after(serve(request.replaced(topics=allowed)), extended(topics=answers))


def delete_records(broker: GuardContext, request: DeleteRecordsRequest, call: Call, serve: Serve) -> Any:
    """DELETE on each topic."""
    allowed, refused = split(broker, call, Operation.DELETE, ResourceType.TOPIC, request.topics, NAME)
    if not refused:
        return serve(request)
    partitions: dict[str, dict[int, None]] = {}
    for topic in refused:  # the response names each partition once
        partitions.setdefault(topic.name, {}).update(dict.fromkeys(one.partition_index for one in topic.partitions))
    answers = [
        DeleteRecordsResponse.DeleteRecordsTopicResult(
            name=name,
            partitions=[
                DeleteRecordsResponse.DeleteRecordsPartitionResult(
                    partition_index=index, low_watermark=-1, error_code=_DENIED
                )
                for index in indexes
            ],
        )
        for name, indexes in partitions.items()
    ]
    return after(serve(request.replaced(topics=allowed)), extended(topics=answers))


def describe_producers(broker: GuardContext, request: DescribeProducersRequest, call: Call, serve: Serve) -> Any:
    """READ on each topic."""
    allowed, refused = split(broker, call, Operation.READ, ResourceType.TOPIC, request.topics, NAME)
    if not refused:
        return serve(request)
    answers = [
        DescribeProducersResponse.TopicResponse(
            name=topic.name,
            partitions=[
                DescribeProducersResponse.PartitionResponse(partition_index=index, error_code=_DENIED)
                for index in topic.partition_indexes
            ],
        )
        for topic in refused
    ]
    return after(serve(request.replaced(topics=allowed)), extended(topics=answers))
