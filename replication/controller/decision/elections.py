"""Elections of a decision: which partitions get another leader or ISR (by the rules of controller.election)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.controller.context import NO_NODE, Partition
from gregor.replication.controller.decision.draft import ClusterDraft
from gregor.replication.controller.election import (
    elect_after_failures,
    elect_first,
    elect_for_shutdown,
    elect_preferred,
)
from gregor.replication.store.nodes import PartitionState


def update_all_states(draft: ClusterDraft) -> None:
    update_states(draft, [key for key, _, _ in draft.cluster.partitions()])


def update_states(draft: ClusterDraft, keys: Iterable[TopicPartition]) -> None:
    """Elect a leader, or shrink the ISR, of those of the partitions whose live replicas require it."""
    for key in keys:
        cluster = draft.cluster
        topic, partition = cluster.topics[key[0]], cluster.partition(key)
        if partition is None or topic.deleting or (partition.state is None and partition.version != NO_NODE):
            continue
        electable = cluster.electable(key, partition)
        if partition.state is None:
            state = elect_first(partition.assignment.replicas, electable, cluster.epoch)
        else:
            state = elect_after_failures(
                partition.assignment.replicas,
                partition.state,
                cluster.alive(key, partition),
                electable,
                topic.unclean,
                cluster.epoch,
            )
        if state is not None:
            draft.change_state(key, partition, state)


def elect_preferred_leaders(draft: ClusterDraft, keys: Iterable[TopicPartition]) -> None:
    def elect(key: TopicPartition, partition: Partition, state: PartitionState) -> PartitionState | None:
        electable = draft.cluster.electable(key, partition)
        return elect_preferred(partition.assignment.replicas, state, electable, draft.cluster.epoch)

    _elect(draft, keys, elect)


def elect_unclean_leaders(draft: ClusterDraft, keys: Iterable[TopicPartition]) -> None:
    """Elect any live replica where no live one leads."""

    def elect(key: TopicPartition, partition: Partition, state: PartitionState) -> PartitionState | None:
        cluster = draft.cluster
        alive, electable = cluster.alive(key, partition), cluster.electable(key, partition)
        if state.leader in alive:
            return None
        return elect_after_failures(partition.assignment.replicas, state, alive, electable, True, cluster.epoch)

    _elect(draft, keys, elect)


def move_leadership(draft: ClusterDraft, broker_id: int) -> None:
    """Move the leadership away from a broker that shuts down, and stop its followers."""

    def elect(key: TopicPartition, partition: Partition, state: PartitionState) -> PartitionState | None:
        electable = draft.cluster.electable(key, partition)
        return elect_for_shutdown(partition.assignment.replicas, state, broker_id, electable, draft.cluster.epoch)

    hosted = [
        (key, partition.state)
        for key, topic, partition in draft.cluster.partitions()
        if broker_id in partition.assignment.replicas and not topic.deleting
    ]
    followed = [key for key, state in hosted if state is not None and state.leader != broker_id]
    _elect(draft, [key for key, _ in hosted], elect)
    if followed:
        draft.stop_replicas(broker_id, followed, delete=False)


def demote_returned(draft: ClusterDraft) -> None:
    """Treat brokers that were away while there was no controller as lost, wherever a replica that was not is in sync.

    An unclean end may have cost them records, and where they led they must not continue in the same epoch. Where all
    replicas have been away, the one that has been back for longest stays alone in sync, and the others show by their
    fetches that they have what it has. Which of them lost records is not known; one that was back before the others
    failed did not.
    """
    cluster = draft.cluster
    returned = cluster.returned
    draft.replace(returned=frozenset())
    for key in sorted({TopicPartition(name, index) for name, index, _ in returned}):
        topic, partition = cluster.topics[key[0]], cluster.partition(key)
        if partition is None or partition.state is None or topic.deleting:
            continue
        isr = partition.state.isr
        stayed = [id_ for id_ in cluster.alive(key, partition) if (*key, id_) not in returned]
        electable = [id_ for id_ in cluster.electable(key, partition) if id_ in stayed]
        if not any(id_ in isr for id_ in stayed):
            back = [id_ for id_ in cluster.electable(key, partition) if id_ in isr]
            stayed = electable = sorted(back, key=lambda id_: cluster.brokers[id_].epoch)[:1]
        if not any(id_ in isr for id_ in electable):
            continue
        replicas = partition.assignment.replicas
        state = elect_after_failures(replicas, partition.state, stayed, electable, False, cluster.epoch)
        if state is not None:
            draft.change_state(key, partition, state)


def _elect(
    draft: ClusterDraft,
    keys: Iterable[TopicPartition],
    elect: Callable[[TopicPartition, Partition, PartitionState], PartitionState | None],
) -> None:
    for key in keys:
        partition = draft.cluster.partition(key)
        if partition is None or partition.state is None or draft.cluster.topics[key[0]].deleting:
            continue
        state = elect(key, partition, partition.state)
        if state is not None:
            draft.change_state(key, partition, state)
