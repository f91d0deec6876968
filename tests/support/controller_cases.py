"""Requests among the brokers of a cluster with ZooKeeper, for the judge of authorization.

Each names an epoch or a broker that is not the present one, so that an allowed request is refused later, and nothing
changes.
"""

from __future__ import annotations

from gregor.protocol import messages as m
from tests.support.authorization_cases import MINE, Cases

BETWEEN_BROKERS = (4, 5, 6, 7, 56, 67)
"""The keys. Apache Kafka 4.3.1 does not serve the first four, and the others on its controllers only."""
OLD_EPOCH = 0
ABSENT = 77
"""A broker that does not exist."""


def controller_cases() -> Cases:
    leader, stop, update, alter = (
        m.LeaderAndIsrRequest,
        m.StopReplicaRequest,
        m.UpdateMetadataRequest,
        m.AlterPartitionRequest,
    )
    sender = {"controller_id": 0, "controller_epoch": OLD_EPOCH, "broker_epoch": -1}
    partition = leader.LeaderAndIsrPartitionState(
        partition_index=0, controller_epoch=OLD_EPOCH, leader=0, leader_epoch=0, isr=[0], replicas=[0]
    )
    stopped = stop.StopReplicaTopicState(
        topic_name=MINE,
        partition_states=[stop.StopReplicaPartitionState(partition_index=0, leader_epoch=0, delete_partition=True)],
    )
    known = update.UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=OLD_EPOCH, leader=0, leader_epoch=0, isr=[0], replicas=[0]
    )
    return {
        "LeaderAndIsr": (
            leader(
                **sender, topic_states=[leader.LeaderAndIsrTopicState(topic_name=MINE, partition_states=[partition])]
            ),
            6,
        ),
        "StopReplica": (stop(**sender, topic_states=[stopped]), 3),
        "UpdateMetadata": (
            update(**sender, topic_states=[update.UpdateMetadataTopicState(topic_name=MINE, partition_states=[known])]),
            7,
        ),
        "ControlledShutdown": (m.ControlledShutdownRequest(broker_id=0, broker_epoch=0), 3),
        "ControlledShutdown of another": (m.ControlledShutdownRequest(broker_id=ABSENT, broker_epoch=-1), 3),
        "AlterPartition": (alter(broker_id=0, broker_epoch=0, topics=[]), 1),
        "AllocateProducerIds": (m.AllocateProducerIdsRequest(broker_id=0, broker_epoch=0), 0),
    }
