"""In-sync sets that leaders request of the controller (AlterPartition, KIP-497): which ones it can grant, and the
errors.

Pure functions of the controller context. The order of the checks is that of Kafka's
KafkaController.tryProcessAlterPartition, and so are the errors; the additional checks of KRaft controllers (the set
holds the leader, replicas only, and these in their present life) are made here, too.
"""

from __future__ import annotations

from typing import NamedTuple

from gregor.protocol.errors import ErrorCode
from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.controller.context import Cluster, Partition
from gregor.replication.store.nodes import PartitionState

ANY_EPOCH = -1


class AlterPartition(NamedTuple):
    """The request of a leader. `isr` holds brokers with the epochs in which they fetched, ANY_EPOCH where unknown."""

    broker_id: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    recovering: bool = False

    def state(self, controller_epoch: int) -> PartitionState:
        """Return the state to write if the request is granted."""
        members = tuple(broker_id for broker_id, _ in self.isr)
        return PartitionState(self.broker_id, self.leader_epoch, members, controller_epoch, self.recovering)


def refusal(cluster: Cluster, key: TopicPartition, requested: AlterPartition) -> ErrorCode | None:
    """Return why the request is refused; None if it can be granted, NONE if the partition is in that state already."""
    topic, partition = cluster.topics.get(key[0]), cluster.partition(key)
    if topic is None or topic.deleting or partition is None or partition.state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    state = partition.state
    if requested.partition_epoch > partition.version or requested.leader_epoch > state.leader_epoch:
        # The leader knows a later controller than this one, and is to find it.
        return ErrorCode.NOT_CONTROLLER
    if requested.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if requested.state(state.controller_epoch) == state:
        # Before the epoch is compared: the request may be repeated because its response was lost.
        return ErrorCode.NONE
    if requested.partition_epoch < partition.version:
        return ErrorCode.INVALID_UPDATE_VERSION
    if requested.recovering and (len(requested.isr) > 1 or not state.recovering):
        return ErrorCode.INVALID_REQUEST
    return _refused_members(cluster, partition, requested)


def _refused_members(cluster: Cluster, partition: Partition, requested: AlterPartition) -> ErrorCode | None:
    assert partition.state is not None
    members = {broker_id for broker_id, _ in requested.isr}
    if (
        requested.broker_id != partition.state.leader
        or requested.broker_id not in members
        or len(members) < len(requested.isr)
        or not members.issubset(partition.assignment.replicas)
    ):
        return ErrorCode.INVALID_REQUEST
    for broker_id, epoch in requested.isr:
        broker = cluster.brokers.get(broker_id)
        if broker is None or epoch not in (ANY_EPOCH, broker.epoch):
            return ErrorCode.INELIGIBLE_REPLICA
        # A leader that shuts down may still add a replica that can succeed it; Kafka refuses that.
        if broker.shutting_down and broker_id != requested.broker_id:
            return ErrorCode.INELIGIBLE_REPLICA
    return None
