"""What the controller says to brokers: LeaderAndIsr 7, UpdateMetadata 8 and StopReplica 4, built from its picture; and
what their answers say of partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

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


KnownStates = dict[tuple[TopicPartition, bool], LeaderAndIsrRequest.LeaderAndIsrPartitionState]


def leader_and_isr(
    cluster: Cluster,
    broker_id: int,
    keys: Iterable[TopicPartition],
    new: Collection[TopicPartition],
    listener: str,
    known: KnownStates | None = None,
) -> LeaderAndIsrRequest | None:
    """The state of those of `keys` that `broker_id` has a replica of; None if there are none.

    `new` are the partitions made just now; `listener` names the one that brokers talk on; `known` keeps what requests
    to several brokers share.
    """
    known = {} if known is None else known
    topics: dict[str, LeaderAndIsrRequest.LeaderAndIsrTopicState] = {}
    leaders: set[int] = set()
    for key in keys:
        partition = cluster.partition(key)
        if partition is None or partition.state is None or broker_id not in partition.assignment.replicas:
            continue
        name, index = key
        state = partition.state
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name=name, topic_id=cluster.topics[name].topic_id
            )
        is_new = key in new or broker_id in partition.assignment.adding
        told = known.get((key, is_new))
        if told is None:
            told = known[key, is_new] = _partition_state(index, partition, state, is_new)
        topic.partition_states.append(told)
        leaders.add(state.leader)
    if not topics:
        return None
    return LeaderAndIsrRequest(
        controller_id=cluster.controller_id,
        controller_epoch=cluster.epoch,
        broker_epoch=cluster.brokers[broker_id].epoch,
        topic_states=list(topics.values()),
        live_leaders=_live_leaders(cluster, leaders, listener),
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
    """The state of `keys`, and the end of topics being `deleted` (name, id, partitions)."""
    topics: dict[str, UpdateMetadataRequest.UpdateMetadataTopicState] = {}
    for key in keys:
        partition = cluster.partition(key)
        if partition is None or partition.state is None:
            continue
        name, index = key
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name=name, topic_id=cluster.topics[name].topic_id
            )
        topic.partition_states.append(_partition_metadata(cluster, key, index, partition))
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
    """All live brokers, and of the topics what is in `topics` (`metadata_of`)."""
    return UpdateMetadataRequest(
        controller_id=cluster.controller_id,
        controller_epoch=cluster.epoch,
        broker_epoch=cluster.brokers[broker_id].epoch,
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
    cluster: Cluster, key: TopicPartition, index: int, partition: Partition
) -> UpdateMetadataRequest.UpdateMetadataPartitionState:
    state = partition.state
    assert state is not None
    return UpdateMetadataRequest.UpdateMetadataPartitionState(
        partition_index=index,
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
    """Stop, and with `delete` remove, these replicas on one broker; None if there are none."""
    topics: dict[str, StopReplicaRequest.StopReplicaTopicState] = {}
    for name, index in keys:
        partition = cluster.partition(TopicPartition(name, index))
        epoch = -1 if partition is None or partition.state is None else partition.state.leader_epoch
        if name not in cluster.topics or cluster.topics[name].deleting:
            epoch = EPOCH_DURING_DELETE
        topic = topics.setdefault(name, StopReplicaRequest.StopReplicaTopicState(topic_name=name))
        topic.partition_states.append(
            StopReplicaRequest.StopReplicaPartitionState(
                partition_index=index,
                leader_epoch=epoch,
                delete_partition=delete,
            )
        )
    if not topics:
        return None
    return StopReplicaRequest(
        controller_id=cluster.controller_id,
        controller_epoch=cluster.epoch,
        broker_epoch=cluster.brokers[broker_id].epoch,
        topic_states=list(topics.values()),
    )


def answered_with(
    error: ErrorCode, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse
) -> frozenset[TopicPartition]:
    """The partitions that were answered with this error."""
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
    """The partitions that were to be deleted, and are; and those that are not."""
    asked = {
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
    return frozenset(asked & done), frozenset(asked - done)
