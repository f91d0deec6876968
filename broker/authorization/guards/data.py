"""The guards of records: Produce, ListOffsets, DeleteRecords, OffsetForLeaderEpoch and DescribeProducers.

Kafka: KafkaApis. Fetch checks the partitions of a session itself (broker.fetch), and so do the routes of the fast path
of Produce (broker.net.produce_fast_path).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from gregor.broker.authorization.guards.common import (
    NAME,
    GuardContext,
    Serve,
    after,
    allows_on_cluster,
    each,
    each_topic,
    extended,
    in_steps,
    split,
    split_at_once,
    topic_name,
)
from gregor.broker.authorization.model import Operation, ResourceType
from gregor.protocol.deferred import Deferred
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
from gregor.protocol.turns import ITEMS_PER_STEP

if TYPE_CHECKING:
    from gregor.broker.context import Call, ClientConnection
    from gregor.broker.jobs.background import Background
    from gregor.protocol.turns import Steps

TOPIC_IDS_FROM = 13
"""Version of Produce."""
PRODUCE_TOPICS_AT_ONCE = 256
"""Topics of a Produce request that are checked at once: to copy its records costs more, and 8 ms if all are denied."""
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_Topic = ProduceRequest.TopicProduceData
_TopicAnswer = ProduceResponse.TopicProduceResponse


# ---- Produce -----------------------------------------------------------------------------------------------------


class ProduceGuardContext(GuardContext, Protocol):
    """The parts of a broker for Produce."""

    @property
    def background(self) -> Background: ...


class _HeldConnection:
    """The connection of a request that it is held for already: when the handler holds it, that hold continues."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self.continues = False
        """The handler ends the hold."""

    def hold(self) -> None:
        self.continues = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def produce(broker: ProduceGuardContext, request: ProduceRequest, call: Call, serve: Serve) -> Any:
    """WRITE on each topic; for transactional records also WRITE on the transactional id, else all are refused."""
    if _is_transactional(request):
        name = request.transactional_id
        if name is None or not broker.authorizer.allows(call, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
            if request.acks == 0:
                _fail(call)
                return None
            denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return ProduceResponse(responses=[_refused_records(topic, denied) for topic in request.topic_data])
    topics = request.topic_data
    if len(topics) > PRODUCE_TOPICS_AT_ONCE:
        return _produce_in_turns(broker, request, call, serve)
    name_of = _name_of(broker, call)
    allowed, refused = split_at_once(broker, call, Operation.WRITE, ResourceType.TOPIC, topics, name_of)
    if not refused:
        return serve(request)
    answers = [_refused_records(topic, _DENIED) for topic in refused]
    return _produced(request, call, serve, allowed, answers)


def _name_of(broker: GuardContext, call: Call) -> Callable[[_Topic], str | None]:
    return NAME if call.version < TOPIC_IDS_FROM else lambda topic: topic_name(broker, topic.name, topic.topic_id)


def _produced(
    request: ProduceRequest, call: Call, serve: Serve, allowed: Sequence[_Topic], answers: list[_TopicAnswer]
) -> Any:
    """Serve the allowed topics of a request; `answers` are those of the refused ones."""
    if answers and not allowed and request.acks != 0:
        return ProduceResponse(responses=answers)
    # The append happens before this returns, as the order of the requests of a connection demands.
    outcome = serve(request.replaced(topic_data=allowed), call) if allowed else None
    if answers and request.acks == 0:
        _fail(call)
    return after(outcome, extended(responses=answers))


def _produce_in_turns(
    broker: ProduceGuardContext, request: ProduceRequest, call: Call, serve: Serve
) -> Deferred[ProduceResponse | None]:
    """Check the topics of a request in turns of the event loop, with copies of the records; no later request of the
    connection is dispatched before the records are appended."""
    copies = [
        [None if (records := data.records) is None else bytearray(records) for data in topic.partition_data]
        for topic in request.topic_data
    ]
    outcome: Deferred[ProduceResponse | None] = Deferred()
    connection = _HeldConnection(call.connection)
    call.connection.hold()

    async def check_and_serve() -> None:
        try:
            topics = await broker.gate.run(_with_records(request.topic_data, copies))
            split_up = split(broker, call, Operation.WRITE, ResourceType.TOPIC, topics, _name_of(broker, call))
            allowed, refused = await broker.gate.run(split_up)
            answers = await broker.gate.run(each(refused, partial(_refused_records, error=_DENIED)))
            held: Any = connection
            answer = _produced(request, replace(call, connection=held), serve, allowed, answers)
        except asyncio.CancelledError:
            outcome.cancel()
            raise
        except Exception as error:
            outcome.fail(error)
            raise
        finally:
            if not connection.continues:
                call.connection.end_hold()
        if isinstance(answer, Deferred):
            answer.then(lambda made: outcome.complete(made.value) if made.error is None else outcome.fail(made.error))
        else:
            outcome.complete(answer)

    # A task of the broker: records that a client sent before it left are appended all the same.
    broker.background.spawn(check_and_serve())
    return outcome


def _with_records(topics: Sequence[_Topic], records: Sequence[Sequence[bytearray | None]]) -> Steps[list[_Topic]]:
    """Return the topics with these records in place of those in the buffer of the connection."""
    made = []
    for topic, of_topic in zip(topics, records, strict=True):
        parts = yield from each(
            zip(topic.partition_data, of_topic, strict=True), lambda pair: pair[0].replaced(records=pair[1])
        )
        made.append(topic.replaced(partition_data=parts))
        if not len(made) % ITEMS_PER_STEP:
            yield None
    return made


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


def _refused_records(topic: _Topic, error: ErrorCode) -> _TopicAnswer:
    return _TopicAnswer(
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
