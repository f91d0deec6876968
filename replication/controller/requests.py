"""The controller's requests to brokers (LeaderAndIsr 7, UpdateMetadata 8, StopReplica 4), built from its context; and
the partitions in their responses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypedDict, TypeVar

from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)
from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.controller.context import Cluster, Partition
from gregor.replication.store.nodes import PartitionState

# Leader of a partition in UpdateMetadata, and leader epoch in StopReplica, while its topic is being deleted.
LEADER_DURING_DELETE = -2
EPOCH_DURING_DELETE = -2

# Kafka's SecurityProtocol ids.
SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

StateT = TypeVar("StateT")

KnownStates = dict[tuple[TopicPartition, bool], LeaderAndIsrRequest.LeaderAndIsrPartitionState]


class _Header(TypedDict):
    controller_id: int
    controller_epoch: int
    broker_epoch: int


def _header(cluster: Cluster, broker_id: int) -> _Header:
    return {
        "controller_id": cluster.controller_id,
        "controller_epoch": cluster.epoch,
        "broker_epoch": cluster.brokers[broker_id].epoch,
    }


def _by_topic(states: Iterable[tuple[str, StateT]]) -> dict[str, list[StateT]]:
    """Group the states of partitions by topic, in the order in which they come."""
    topics: dict[str, list[StateT]] = {}
    for name, state in states:
        topics.setdefault(name, []).append(state)
    return topics


def leader_and_isr(
    cluster: Cluster,
    broker_id: int,
    keys: Iterable[TopicPartition],
    new: Collection[TopicPartition],
    listener: str,
    known: KnownStates | None = None,
) -> LeaderAndIsrRequest | None:
    """Return the state of those of `keys` that `broker_id` has a replica of; None if there are none.

    `new` are the partitions created just now; `listener` names the one for traffic between brokers; `known` keeps what
    requests to several brokers share.
    """
    known = {} if known is None else known
    states: list[tuple[str, LeaderAndIsrRequest.LeaderAndIsrPartitionState]] = []
    for key in keys:
        partition = cluster.partition(key)
        if partition is None or partition.state is None or broker_id not in partition.assignment.replicas:
            continue
        is_new = key in new or broker_id in partition.assignment.adding
        state = known.get((key, is_new))
        if state is None:
            state = known[key, is_new] = _partition_state(key[1], partition, partition.state, is_new)
        states.append((key[0], state))
    if not states:
        return None
    return LeaderAndIsrRequest(
        **_header(cluster, broker_id),
        topic_states=[
            LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name=name, topic_id=cluster.topics[name].topic_id, partition_states=grouped
            )
            for name, grouped in _by_topic(states).items()
        ],
        live_leaders=_live_leaders(cluster, {state.leader for _, state in states}, listener),
    )


def _partition_state(
    index: int, partition: Partition, state: PartitionState, is_new: bool
) -> LeaderAndIsrRequest.LeaderAndIsrPartitionState:
    return LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        partition_index=index,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=partition.version,
        replicas=list(partition.assignment.replicas),
        adding_replicas=list(partition.assignment.adding),
        removing_replicas=list(partition.assignment.removing),
        is_new=is_new,
        leader_recovery_state=int(state.recovering),
    )


def _live_leaders(
    cluster: Cluster, leaders: set[int], listener: str
) -> list[LeaderAndIsrRequest.LeaderAndIsrLiveLeader]:
    return [
        LeaderAndIsrRequest.LeaderAndIsrLiveLeader(broker_id=id_, host_name=endpoint.host, port=endpoint.port)
        for id_ in sorted(leaders & cluster.brokers.keys())
        for endpoint in cluster.brokers[id_].registration.endpoints
        if endpoint.name == listener
    ]


def metadata_of(
    cluster: Cluster,
    keys: Iterable[TopicPartition],
    deleted: Iterable[tuple[str, Uuid, Collection[int]]] = (),
) -> list[UpdateMetadataRequest.UpdateMetadataTopicState]:
    """Return the state of `keys`, and the end of topics being `deleted` (name, id, partitions)."""
    states = (
        (key[0], _partition_metadata(cluster, key, partition, partition.state))
        for key in keys
        if (partition := cluster.partition(key)) is not None and partition.state is not None
    )
    topics = {
        name: UpdateMetadataRequest.UpdateMetadataTopicState(
            topic_name=name, topic_id=cluster.topics[name].topic_id, partition_states=grouped
        )
        for name, grouped in _by_topic(states).items()
    }
    for name, topic_id, indexes in deleted:
        topics[name] = UpdateMetadataRequest.UpdateMetadataTopicState(
            topic_name=name,
            topic_id=topic_id,
            partition_states=[
                UpdateMetadataRequest.UpdateMetadataPartitionState(
                    partition_index=index, controller_epoch=cluster.epoch, leader=LEADER_DURING_DELETE
                )
                for index in indexes
            ],
        )
    return list(topics.values())


def update_metadata(
    cluster: Cluster, broker_id: int, topics: list[UpdateMetadataRequest.UpdateMetadataTopicState]
) -> UpdateMetadataRequest:
    """Return all live brokers, and of the topics only `topics` (`metadata_of`)."""
    return UpdateMetadataRequest(
        **_header(cluster, broker_id),
        topic_states=topics,
        live_brokers=[
            UpdateMetadataRequest.UpdateMetadataBroker(
                id=id_,
                endpoints=[
                    UpdateMetadataRequest.UpdateMetadataEndpoint(
                        port=endpoint.port,
                        host=endpoint.host,
                        listener=endpoint.name,
                        security_protocol=SECURITY_PROTOCOL_IDS.get(endpoint.security_protocol, 0),
                    )
                    for endpoint in broker.registration.endpoints
                ],
                rack=broker.registration.rack,
            )
            for id_, broker in sorted(cluster.brokers.items())
        ],
    )


def _partition_metadata(
    cluster: Cluster, key: TopicPartition, partition: Partition, state: PartitionState
) -> UpdateMetadataRequest.UpdateMetadataPartitionState:
    return UpdateMetadataRequest.UpdateMetadataPartitionState(
        partition_index=key[1],
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        zk_version=partition.version,
        replicas=list(partition.assignment.replicas),
        offline_replicas=cluster.offline_replicas(key, partition),
    )


def stop_replicas(
    cluster: Cluster, broker_id: int, keys: Iterable[TopicPartition], delete: bool
) -> StopReplicaRequest | None:
    """Stop replicas on one broker, and with `delete` remove their logs; None if there are none."""
    topics = _by_topic((key[0], _replica_to_stop(cluster, key, delete)) for key in keys)
    if not topics:
        return None
    return StopReplicaRequest(
        **_header(cluster, broker_id),
        topic_states=[
            StopReplicaRequest.StopReplicaTopicState(topic_name=name, partition_states=grouped)
            for name, grouped in topics.items()
        ],
    )


def _replica_to_stop(
    cluster: Cluster, key: TopicPartition, delete: bool
) -> StopReplicaRequest.StopReplicaPartitionState:
    topic, partition = cluster.topics.get(key[0]), cluster.partition(key)
    if topic is None or topic.deleting:
        epoch = EPOCH_DURING_DELETE
    else:
        epoch = -1 if partition is None or partition.state is None else partition.state.leader_epoch
    return StopReplicaRequest.StopReplicaPartitionState(
        partition_index=key[1], leader_epoch=epoch, delete_partition=delete
    )


def answered_with(
    error: ErrorCode, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse
) -> frozenset[TopicPartition]:
    """Return the partitions that were answered with this error."""
    names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
    code = int(error)
    return frozenset(
        TopicPartition(names[topic.topic_id], partition.partition_index)
        for topic in response.topics
        for partition in topic.partition_errors
        if partition.error_code == code
    )


def removed_by(
    request: StopReplicaRequest, response: StopReplicaResponse
) -> tuple[frozenset[TopicPartition], frozenset[TopicPartition]]:
    """Return the partitions whose logs were to be deleted and are, and those of which they are not."""
    requested = {
        TopicPartition(topic.topic_name, partition.partition_index)
        for topic in request.topic_states
        for partition in topic.partition_states
        if partition.delete_partition
    }
    done = {
        TopicPartition(entry.topic_name, entry.partition_index)
        for entry in response.partition_errors
        if not entry.error_code
    }
    return frozenset(requested & done), frozenset(requested - done)
