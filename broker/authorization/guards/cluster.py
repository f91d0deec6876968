"""The guards of the cluster: requests that need one operation on it, and are refused as a whole without it.

CLUSTER_ACTION is for requests among brokers, ALTER and DESCRIBE for administration. Each refusal is made as Apache
Kafka makes the response of a request that failed as a whole (AbstractRequest.getErrorResponse).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from gregor.broker.authorization.guards.common import (
    Guard,
    GuardContext,
    Serve,
    allows_on_cluster,
    begun,
    each,
    each_topic,
)
from gregor.broker.authorization.model import Operation
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    AllocateProducerIdsResponse,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    ControlledShutdownResponse,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsResponse,
    DescribeLogDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateFeaturesResponse,
    UpdateMetadataResponse,
)

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.protocol.topic_partition import TopicPartitionKey
    from gregor.protocol.turns import Steps

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TEXT = "Cluster authorization failed."

Refuse = Callable[[Any, int], Any]
"""(request, version) -> response, or the steps of it where it has an answer for each of many items."""


def on_cluster(operation: Operation, refuse: Refuse) -> Guard:
    """Return the guard of an API that needs `operation` on the cluster."""

    def guard(broker: GuardContext, request: Any, call: Call, serve: Serve) -> Any:
        if allows_on_cluster(broker, call, operation):
            return serve(request)
        refusal = refuse(request, call.version)
        return begun(broker.gate, refusal) if isinstance(refusal, Generator) else refusal

    return guard


# ---- among brokers -----------------------------------------------------------------------------------------------


def leader_and_isr(request: LeaderAndIsrRequest, version: int) -> Steps[LeaderAndIsrResponse]:
    make = LeaderAndIsrResponse.LeaderAndIsrPartitionError
    response = LeaderAndIsrResponse(error_code=_DENIED)
    if version < 2:
        response.partition_errors = yield from each(
            request.ungrouped_partition_states,
            lambda one: make(topic_name=one.topic_name, partition_index=one.partition_index, error_code=_DENIED),
        )
    elif version < 5:
        response.partition_errors = yield from each(
            ((topic.topic_name, one) for topic in request.topic_states for one in topic.partition_states),
            lambda named: make(topic_name=named[0], partition_index=named[1].partition_index, error_code=_DENIED),
        )
    else:
        response.topics = yield from each_topic(
            request.topic_states,
            attrgetter("partition_states"),
            lambda one: make(partition_index=one.partition_index, error_code=_DENIED),
            lambda topic, parts: LeaderAndIsrResponse.LeaderAndIsrTopicError(
                topic_id=topic.topic_id, partition_errors=parts
            ),
        )
    return response


def stop_replica(request: StopReplicaRequest, version: int) -> Steps[StopReplicaResponse]:
    named: Iterable[TopicPartitionKey]
    if version < 1:
        named = ((one.topic_name, one.partition_index) for one in request.ungrouped_partitions)
    elif version < 3:
        named = ((topic.name, index) for topic in request.topics for index in topic.partition_indexes)
    else:
        named = (
            (topic.topic_name, one.partition_index) for topic in request.topic_states for one in topic.partition_states
        )
    make = StopReplicaResponse.StopReplicaPartitionError
    errors = yield from each(named, lambda one: make(topic_name=one[0], partition_index=one[1], error_code=_DENIED))
    return StopReplicaResponse(error_code=_DENIED, partition_errors=errors)


def update_metadata(_request: Any, _version: int) -> UpdateMetadataResponse:
    return UpdateMetadataResponse(error_code=_DENIED)


def controlled_shutdown(_request: Any, _version: int) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(error_code=_DENIED)


def alter_partition(_request: Any, _version: int) -> AlterPartitionResponse:
    return AlterPartitionResponse(error_code=_DENIED)


def allocate_producer_ids(_request: Any, _version: int) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(error_code=_DENIED)


# ---- administration ----------------------------------------------------------------------------------------------


def alter_replica_log_dirs(request: AlterReplicaLogDirsRequest, _version: int) -> Steps[AlterReplicaLogDirsResponse]:
    topics: dict[str, dict[int, None]] = {}
    for folder in request.dirs:
        for topic in folder.topics:
            topics.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
    make = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult
    results = yield from each_topic(
        topics,
        topics.__getitem__,
        lambda index: make(partition_index=index, error_code=_DENIED),
        lambda name, parts: AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(
            topic_name=name, partitions=parts
        ),
    )
    return AlterReplicaLogDirsResponse(results=results)


def describe_log_dirs(_request: Any, _version: int) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(error_code=_DENIED)


def elect_leaders(request: ElectLeadersRequest, version: int) -> Steps[ElectLeadersResponse]:
    response = ElectLeadersResponse(
        replica_election_results=(
            yield from each_topic(
                request.topic_partitions or (),
                attrgetter("partitions"),
                lambda index: ElectLeadersResponse.PartitionResult(
                    partition_id=index, error_code=_DENIED, error_message=TEXT
                ),
                lambda topic, parts: ElectLeadersResponse.ReplicaElectionResult(
                    topic=topic.topic, partition_result=parts
                ),
            )
        )
    )
    if version >= 1:
        response.error_code = _DENIED
    return response


def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, _version: int
) -> Steps[AlterPartitionReassignmentsResponse]:
    responses = yield from each_topic(
        request.topics,
        attrgetter("partitions"),
        lambda one: AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(
            partition_index=one.partition_index, error_code=_DENIED, error_message=TEXT
        ),
        lambda topic, parts: AlterPartitionReassignmentsResponse.ReassignableTopicResponse(
            name=topic.name, partitions=parts
        ),
    )
    return AlterPartitionReassignmentsResponse(error_code=_DENIED, error_message=TEXT, responses=responses)


def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, _version: int
) -> Steps[ListPartitionReassignmentsResponse]:
    topics = yield from each_topic(
        request.topics or (),
        attrgetter("partition_indexes"),
        lambda index: ListPartitionReassignmentsResponse.OngoingPartitionReassignment(partition_index=index),
        lambda topic, parts: ListPartitionReassignmentsResponse.OngoingTopicReassignment(
            name=topic.name, partitions=parts
        ),
    )
    return ListPartitionReassignmentsResponse(error_code=_DENIED, error_message=TEXT, topics=topics)


def update_features(_request: Any, _version: int) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=_DENIED, error_message=TEXT)


def describe_acls(_request: Any, _version: int) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=_DENIED, error_message=TEXT, resources=[])


def create_acls(request: CreateAclsRequest, _version: int) -> CreateAclsResponse:
    refused = CreateAclsResponse.AclCreationResult(error_code=_DENIED, error_message=TEXT)
    return CreateAclsResponse(results=[refused] * len(request.creations))


def delete_acls(request: DeleteAclsRequest, _version: int) -> DeleteAclsResponse:
    refused = DeleteAclsResponse.DeleteAclsFilterResult(error_code=_DENIED, error_message=TEXT, matching_acls=[])
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
