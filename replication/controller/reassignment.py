"""Partitions that move to other brokers (KIP-455): pure functions of assignments.

While a partition moves, `replicas` of its assignment holds the target replicas in their order, and behind them those
that are to be removed; `adding` are the new ones, `removing` those to be removed. Rules: Kafka's ReplicaAssignment
and KafkaController.onPartitionReassignment.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.controller.context import Cluster, Partition
from gregor.replication.controller.election import elect_after_move
from gregor.replication.store.nodes import ReplicaAssignment


def is_moving(assignment: ReplicaAssignment) -> bool:
    return bool(assignment.adding or assignment.removing)


def target_of(assignment: ReplicaAssignment) -> tuple[int, ...]:
    """Return the replicas after the move."""
    return tuple(id_ for id_ in assignment.replicas if id_ not in assignment.removing)


def origin_of(assignment: ReplicaAssignment) -> tuple[int, ...]:
    """Return the replicas before the move, not always in their order of then."""
    return tuple(id_ for id_ in assignment.replicas if id_ not in assignment.adding)


def reassigned(assignment: ReplicaAssignment, target: Sequence[int] | None) -> ReplicaAssignment:
    """Return the assignment during a move to `target`, or with None back to the origin. It replaces a present move."""
    origin = origin_of(assignment)
    target = origin if target is None else target
    replicas = tuple(dict.fromkeys((*target, *origin)))
    adding = tuple(id_ for id_ in replicas if id_ not in origin)
    return ReplicaAssignment(replicas, adding, tuple(id_ for id_ in replicas if id_ not in target))


def has_arrived(assignment: ReplicaAssignment, isr: Collection[int]) -> bool:
    return all(id_ in isr for id_ in target_of(assignment))


def before_all_have_left(assignment: ReplicaAssignment, leaving: Collection[int]) -> ReplicaAssignment:
    """Return the assignment as its node has it after the move, until all brokers that were left have confirmed it."""
    if not leaving:
        return assignment
    left = tuple(sorted(leaving))
    return ReplicaAssignment((*assignment.replicas, *left), (), left)


def unneeded(before: ReplicaAssignment, after: ReplicaAssignment) -> list[int]:
    """Return the brokers that only the assignment before has."""
    return [id_ for id_ in before.replicas if id_ not in after.replicas]


def can_change(cluster: Cluster, key: TopicPartition, partition: Partition, after: ReplicaAssignment) -> bool:
    """Return whether the assignment may change now: not if it removes the only replicas that are in sync."""
    going = unneeded(partition.assignment, after)
    if not going or partition.state is None:
        return True
    electable = cluster.electable(key, partition)
    return elect_after_move(after.replicas, going, partition.state, electable, cluster.epoch) is not None


def reassignment_refusal(
    cluster: Cluster,
    key: TopicPartition,
    target: Sequence[int] | None,
    *,
    keep_factor: bool = False,
    any_broker: bool = False,
) -> KafkaError | None:
    """Return why the partition cannot move to `target`, or with None back to its origin; None if it can.

    `keep_factor`: only to as many brokers as it has replicas (KIP-860); `any_broker`: also to brokers that are not
    alive.
    """
    topic, partition = cluster.topics.get(key[0]), cluster.partition(key)
    if topic is None or partition is None or topic.deleting or topic.deletion_queued:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    assignment = partition.assignment

    def refuse(why: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)

    if target is None:
        if not is_moving(assignment):
            return KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        if not can_change(cluster, key, partition, reassigned(assignment, None)):
            return refuse("only brokers that it was on its way to have all of its records")
        return None
    if not target:
        return refuse("the list of replicas is empty")
    if len(set(target)) < len(target):
        return refuse(f"two replicas on one broker: {list(target)}")
    if min(target) < 0:
        return refuse(f"broker ids are not negative: {list(target)}")
    absent = [id_ for id_ in reassigned(assignment, target).adding if id_ not in cluster.brokers]
    if absent and not any_broker:
        return refuse(f"brokers {absent} are not alive; those that are: {sorted(cluster.brokers)}")
    if not can_change(cluster, key, partition, reassigned(assignment, target)):
        return refuse("only brokers that it was on its way to, and is not any more, have all of its records")
    present = len(origin_of(assignment))
    if keep_factor and len(target) != present:
        return KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"{len(target)} replicas, {key[0]}-{key[1]} has {present}"
        )
    return None
