"""Metadata (key 3), versions 0 to 13: brokers, topics, leaders; creates topics on first use where that is allowed.

- 1 null means all topics, controller id, racks, internal flag; version 0 omits replicas that cannot be reached, with
  REPLICA_NOT_AVAILABLE; 2 cluster id; 4 the client may forbid creation;
  5 offline replicas; 6 LISTENER_NOT_FOUND; 7 leader epochs; 8 authorized operations; 9 flexible; 10 topic ids;
  12 topics by id alone, and if one is requested by id, those requested by name are ignored; 13 an error for the whole
  answer.
- A topic is created within the request (`auto.create.topics.enable`), and the response has its leaders, not an error
  after which the client must retry. This holds for CREATED_AT_ONCE topics of a request, and as long as the creations
  need less than MAX_CREATION_S; the others are LEADER_NOT_AVAILABLE, and are created when the client retries.
- But the name of a deleted topic is UNKNOWN_TOPIC_OR_PARTITION in the first request after the deletion, although a new
  topic is created: the client may be the one that has deleted it, and checks whether it still exists.
- A broker that has just joined a cluster responds once the controller has sent UpdateMetadata.
- A response about many partitions is made in slices and stored (gregor.broker.answers.metadata).
- Without an authorizer every client may do everything, which the authorized operations show. With one, topics that the
  client may not describe are omitted if all were requested, else they have TOPIC_AUTHORIZATION_FAILED, whether they
  exist or not; so have those that would be created, but not by this client (CREATE on the cluster or the topic).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from gregor.broker.answers.authorized_operations import NOT_REQUESTED, authorized_operations, cluster_operations
from gregor.broker.answers.metadata import encoded_answer
from gregor.broker.answers.visible_topics import describable_in_turns
from gregor.broker.authorization.model import CLUSTER_NAME, Operation, ResourceType
from gregor.broker.cluster.membership import until_informed
from gregor.broker.context import MetadataContext
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import MetadataRequest, MetadataResponse
from gregor.protocol.topic_names import INTERNAL_TOPICS
from gregor.protocol.turns import ITEMS_PER_STEP

if TYPE_CHECKING:
    from gregor.broker.answers.metadata import EncodedTopics
    from gregor.broker.context import Call, TopicCreation
    from gregor.broker.jobs.background import Background
    from gregor.broker.net.responses import EncodedResponse
    from gregor.protocol.ids import Uuid
    from gregor.protocol.turns import Turns
    from gregor.replication.admin.topics import Admin
    from gregor.replication.partition.metadata_image import PartitionState, TopicState

Topic = MetadataResponse.MetadataResponseTopic
_Operations = Callable[[str], int]
"""Returns the authorized operations on the topic of a name."""

_WITHOUT_OPERATIONS = frozenset(
    {ErrorCode.INVALID_REQUEST, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID}
)

DEAD_REPLICAS_FROM = 1
CREATION_CHOICE_FROM = 4
LISTENER_ERROR_FROM = 6
IDS_FROM = 12
CREATED_AT_ONCE = 100
"""Limit of the topics that one request creates before its response; each needs some milliseconds."""
CREATIONS_IN_PARALLEL = 10
MAX_CREATION_S = 5.0
"""After this time a request begins no more creations: while the controller cannot be reached, each lasts as long."""
MANY_PARTITIONS = 200
"""A response about more partitions is made in slices."""


class EncodedMetadataContext(MetadataContext, Protocol):
    """Metadata, and the creation of topics on first use."""

    @property
    def admin(self) -> Admin: ...
    @property
    def background(self) -> Background: ...
    @property
    def encoded_topics(self) -> EncodedTopics: ...
    @property
    def topic_creator(self) -> TopicCreation: ...


@handles(ApiKey.METADATA, 0, 13)
async def metadata(
    broker: EncodedMetadataContext, request: MetadataRequest, call: Call
) -> MetadataResponse | EncodedResponse:
    if not broker.metadata.is_informed:
        await until_informed(broker.metadata)
    may_create = broker.config["auto.create.topics.enable"] and (
        call.version < CREATION_CHOICE_FROM or request.allow_auto_topic_creation
    )
    if request.topics is None or (call.version == 0 and not request.topics):
        found: list[TopicState | Topic] = await _all_visible(broker, call)
    else:
        found = await _wanted(broker, request.topics, call, may_create)
    leaders = _leaders(broker, call)
    if request.include_topic_authorized_operations:
        operations: _Operations = partial(authorized_operations, broker.authorizer, call, ResourceType.TOPIC)
        kind: object = _rights(broker, call), tuple(leaders.items())
        found = [_with_operations(one, operations) if isinstance(one, Topic) else one for one in found]
    else:
        operations, kind = _no_operations, tuple(leaders.items())
    answered = partial(_known, leaders, operations, call.version < DEAD_REPLICAS_FROM)
    few = found[: MANY_PARTITIONS + 1]
    if sum(1 if isinstance(one, Topic) else len(one.partitions) for one in few) <= MANY_PARTITIONS:
        topics = [one if isinstance(one, Topic) else answered(one, sorted(one.partitions)) for one in found]
        return _answer(broker, request, call, topics)
    answer = _answer(broker, request, call, [])
    work = broker.encoded_topics.collect(found, answered, call.version, kind, broker.metadata.topics_count)
    encoded = encoded_answer(answer, await broker.gate.run(work), len(found), call.version)
    turns = broker.gate.turns()
    while found:  # to free a hundred thousand at once would hold up the loop, too
        del found[-ITEMS_PER_STEP:]
        await turns.next()
    return encoded


def _with_operations(topic: Topic, operations: _Operations) -> Topic:
    """A topic that does not exist has authorized operations too, unless its name is unknown or hidden."""
    if topic.name is None or topic.error_code in _WITHOUT_OPERATIONS:
        return topic
    return topic.replaced(topic_authorized_operations=operations(topic.name))


def _answer(
    broker: EncodedMetadataContext, request: MetadataRequest, call: Call, topics: list[Topic]
) -> MetadataResponse:
    return MetadataResponse(
        topics=topics,
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=node_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack
            )
            for node_id in sorted(broker.metadata.brokers)
            if (endpoint := broker.endpoint_of(node_id, call)) is not None
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.metadata.controller_id,
        cluster_authorized_operations=(
            cluster_operations(broker.authorizer, call)
            if request.include_cluster_authorized_operations
            else NOT_REQUESTED
        ),
    )


async def _wanted(
    broker: EncodedMetadataContext,
    wanted: Sequence[MetadataRequest.MetadataRequestTopic],
    call: Call,
    may_create: bool,
) -> list[TopicState | Topic]:
    """Return each requested topic once, however often it is named."""
    turns = broker.gate.turns()
    if call.version >= IDS_FROM and len(wanted) > 1:
        wanted = await _by_id_alone(wanted, turns) or wanted
    denied = await _denied(broker, wanted, call, turns, may_create=may_create)
    named: dict[tuple[str | None, Uuid], MetadataRequest.MetadataRequestTopic] = {}
    missing: list[str] = []
    by_id = False
    for topic in wanted:
        await turns.next()
        name = topic.name
        if named.setdefault((name, topic.topic_id), topic) is not topic:
            continue
        if name is None or topic.topic_id != ZERO_UUID:
            by_id = True
        elif (
            may_create
            and name not in denied
            and len(missing) < CREATED_AT_ONCE
            and broker.metadata.topic(name) is None
            and broker.admin.is_legal_topic_name(name)
        ):
            missing.append(name)
    found: list[TopicState | Topic] = []
    if by_id and call.version < IDS_FROM:
        # Versions 10 and 11 have the fields, but a topic cannot be requested by id. The names in the response are never
        # null.
        for topic in wanted:
            await turns.next()
            found.append(Topic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name or ""))
        return found
    deleted = {name for name in missing if broker.metadata.pop_deleted(name)}
    refused = await _create(broker, missing) if missing else {}
    absent = ErrorCode.LEADER_NOT_AVAILABLE if may_create else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for topic in named.values():
        await turns.next()
        if topic.name is None or topic.topic_id != ZERO_UUID:
            found.append(_by_id(broker, topic, denied))
        elif topic.name in denied:
            found.append(Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=topic.name))
        elif topic.name in deleted:
            found.append(Topic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=topic.name))
        else:
            found.append(_by_name(broker, topic.name, refused.get(topic.name, absent)))
    return found


async def _by_id_alone(
    wanted: Iterable[MetadataRequest.MetadataRequestTopic], turns: Turns
) -> list[MetadataRequest.MetadataRequestTopic]:
    """Return the topics that are requested by id."""
    by_id = []
    for topic in wanted:
        await turns.next()
        if topic.topic_id != ZERO_UUID:
            by_id.append(topic)
    return by_id


async def _all_visible(broker: EncodedMetadataContext, call: Call) -> list[TopicState | Topic]:
    """Return all topics that the client may describe."""
    if broker.authorizer is None:
        return [*broker.metadata.topics()]
    turns = broker.gate.turns()
    visible = await describable_in_turns(broker.authorizer, call, broker.metadata.names(), turns)
    return [topic for topic in broker.metadata.topics() if topic.name in visible]


async def _denied(
    broker: EncodedMetadataContext,
    wanted: Iterable[MetadataRequest.MetadataRequestTopic],
    call: Call,
    turns: Turns,
    *,
    may_create: bool,
) -> Collection[str]:
    """Return the names of requested topics that the client may not describe, or not create if they do not exist."""
    authorizer, metadata = broker.authorizer, broker.metadata
    if authorizer is None:
        return ()
    names = {
        name
        for topic in wanted
        if (name := metadata.topic_name(topic.topic_id) if topic.topic_id != ZERO_UUID else topic.name) is not None
    }
    visible = await describable_in_turns(authorizer, call, names, turns, logs_denial=True)
    denied = names - visible
    new = {name for name in visible if may_create and metadata.topic(name) is None}
    create = Operation.CREATE
    if new and not authorizer.allows(call, create, ResourceType.CLUSTER, CLUSTER_NAME, logs_denial=False):
        denied |= new - authorizer.allowed(call, create, ResourceType.TOPIC, new)
    return denied


def _by_id(
    broker: EncodedMetadataContext, wanted: MetadataRequest.MetadataRequestTopic, denied: Collection[str]
) -> TopicState | Topic:
    name = broker.metadata.topic_name(wanted.topic_id)
    if name in denied:
        # The id is no secret, the name is.
        return Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=wanted.topic_id)
    topic = None if name is None else broker.metadata.topic(name)
    if topic is None:
        return Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id)
    return topic


def _by_name(broker: EncodedMetadataContext, name: str, error: ErrorCode) -> TopicState | Topic:
    """`error`: of a topic that does not exist, if it could."""
    topic = broker.metadata.topic(name)
    if topic is None:
        if not broker.admin.is_legal_topic_name(name):
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
        return Topic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)
    return topic


async def _create(broker: EncodedMetadataContext, names: Sequence[str]) -> dict[str, ErrorCode]:
    """Create topics as long as there is time, and return the errors of those that were refused."""
    refused: dict[str, ErrorCode] = {}

    async def create(name: str) -> None:
        try:
            await broker.topic_creator.create(name)
        except KafkaError as refusal:
            refused[name] = refusal.code

    until_s = time.monotonic() + MAX_CREATION_S
    for first in range(0, len(names), CREATIONS_IN_PARALLEL):
        if first and time.monotonic() > until_s:
            break
        await asyncio.gather(*map(create, names[first : first + CREATIONS_IN_PARALLEL]))
    return refused


def _leaders(broker: EncodedMetadataContext, call: Call) -> dict[int, ErrorCode]:
    """Return the live brokers, each with an error if this client cannot reach it."""
    lacking = ErrorCode.LISTENER_NOT_FOUND if call.version >= LISTENER_ERROR_FROM else ErrorCode.LEADER_NOT_AVAILABLE
    return {
        node_id: ErrorCode.NONE if broker.endpoint_of(node_id, call) is not None else lacking
        for node_id in broker.metadata.brokers
    }


def _no_operations(_name: str) -> int:
    return NOT_REQUESTED


def _rights(broker: EncodedMetadataContext, call: Call) -> object:
    """Return all that the authorized operations depend on besides the topic."""
    if broker.authorizer is None:
        return True
    return call.connection.principal, call.connection.host, broker.authorizer.generation


def _known(
    leaders: Mapping[int, ErrorCode],
    operations: _Operations,
    alive_only: bool,
    topic: TopicState,
    indexes: Iterable[int],
) -> Topic:
    partition = _alive_only if alive_only else _partition
    return Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[partition(index, topic.partitions[index], leaders) for index in indexes],
        topic_authorized_operations=operations(topic.name),
    )


def _partition(
    index: int, state: PartitionState, leaders: Mapping[int, ErrorCode]
) -> MetadataResponse.MetadataResponsePartition:
    """Make the answer for a partition. `leaders`: the live brokers, each with an error if this client cannot reach
    it."""
    error = leaders.get(state.leader, ErrorCode.LEADER_NOT_AVAILABLE)
    return MetadataResponse.MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=-1 if error else state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.isr,
        offline_replicas=[node for node in state.replicas if node not in leaders or node in state.offline_replicas],
    )


def _alive_only(
    index: int, state: PartitionState, leaders: Mapping[int, ErrorCode]
) -> MetadataResponse.MetadataResponsePartition:
    """Omit replicas that are not alive: clients of version 0 need each among the brokers of the response."""
    answer = _partition(index, state, leaders)
    replicas = [node for node in state.replicas if leaders.get(node) == ErrorCode.NONE]
    isr = [node for node in state.isr if leaders.get(node) == ErrorCode.NONE]
    is_whole = len(replicas) == len(state.replicas) and len(isr) == len(state.isr)
    error = answer.error_code or (ErrorCode.NONE if is_whole else ErrorCode.REPLICA_NOT_AVAILABLE)
    return answer.replaced(error_code=error, replica_nodes=replicas, isr_nodes=isr)
