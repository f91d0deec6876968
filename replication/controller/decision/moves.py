"""Partitions that a decision moves to other brokers (KIP-455; controller.reassignment has the rules)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.controller.context import Partition
from gregor.replication.controller.decision.draft import ClusterDraft
from gregor.replication.controller.decision.elections import update_states
from gregor.replication.controller.election import elect_after_move
from gregor.replication.controller.reassignment import (
    can_change,
    has_arrived,
    is_moving,
    reassigned,
    target_of,
    unneeded,
)
from gregor.replication.store.nodes import ReplicaAssignment


class PartitionMoves:
    """The moves of one decision: those that begin, that change and that are over."""

    def __init__(self, draft: ClusterDraft) -> None:
        self._draft = draft
        self.ended_topics: dict[str, None] = {}
        """Topics of partitions whose moves are over: their nodes are to be written."""
        self.dropped: dict[TopicPartition, tuple[int, ...] | None] = {}
        """Requests to drop, see DropReassignments."""

    def begin(self, targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> None:
        """Move each partition to these brokers, or with None back to where it came from."""
        draft = self._draft
        moves: list[tuple[TopicPartition, list[int]]] = []
        for key, target in targets.items():
            topic, partition = draft.cluster.topics.get(key[0]), draft.cluster.partition(key)
            if topic is None or partition is None or topic.deleting or topic.deletion_queued:
                continue
            before = partition.assignment
            if target is None and not is_moving(before):
                continue
            assignment = reassigned(before, target)
            if not can_change(draft.cluster, key, partition, assignment):
                continue
            if not is_moving(assignment) and (assignment != before or key not in draft.leaving):
                self.dropped[key] = target
            if assignment != before:
                draft.assign(key, partition, assignment)
                moves.append((key, unneeded(before, assignment)))
        # The nodes of the topics are the first writes, so that the next controller continues the moves.
        for name in dict.fromkeys(key[0] for key, _ in moves):
            draft.write_topic(name)
        for key, removed in moves:
            self._notify_replicas(key, removed)

    def resume(self) -> None:
        """Notify the leaders of all partitions that move: they may not know of it from the last controller."""
        for key in sorted(self._draft.moving - self._draft.changed_states.keys()):
            self._notify_replicas(key, ())

    def complete(self) -> None:
        """Remove the old replicas of the partitions whose new replicas are all in sync."""
        draft = self._draft
        for key in sorted(draft.moving):
            partition = draft.cluster.partition(key)
            if partition is None or partition.state is None:
                continue
            assignment = partition.assignment
            if not has_arrived(assignment, partition.state.isr):
                continue
            target = ReplicaAssignment(target_of(assignment))
            if self._change_replicas(key, partition._replace(assignment=target), assignment.removing):
                draft.moving.discard(key)
                alive = draft.cluster.alive(key, partition)
                draft.leaving[key] = frozenset(id_ for id_ in assignment.removing if id_ in alive)
                self._end(key)

    def confirm_left(self, broker_id: int, keys: Iterable[TopicPartition]) -> None:
        """Record that the broker no longer has these partitions: it has confirmed it, or is gone."""
        for key in sorted(keys):
            self._draft.leaving[key] -= {broker_id}
            self._end(key)

    def left_by(self, broker_id: int) -> list[TopicPartition]:
        """Return the partitions whose departure the broker has not confirmed."""
        return [key for key, ids in self._draft.leaving.items() if broker_id in ids]

    def _notify_replicas(self, key: TopicPartition, removed: Collection[int]) -> None:
        """Notify the replicas of the partition's new assignment; `removed` are those that only the last one had."""
        partition = self._draft.cluster.partition(key)
        if partition is None:
            return
        if partition.state is None:
            update_states(self._draft, [key])
        elif removed or key not in self._draft.moving or not has_arrived(partition.assignment, partition.state.isr):
            self._change_replicas(key, partition, removed)

    def _change_replicas(self, key: TopicPartition, partition: Partition, removed: Collection[int]) -> bool:
        """Put the partition's new assignment into effect; False if the removed replicas cannot go yet."""
        assert partition.state is not None
        cluster = self._draft.cluster
        replicas, electable = partition.assignment.replicas, cluster.electable(key, partition)
        state = elect_after_move(replicas, removed, partition.state, electable, cluster.epoch)
        if state is None:
            return False
        self._draft.change_state(key, partition, state)
        for id_ in sorted(removed):
            self._draft.stop_replicas(id_, [key], delete=True)
        return True

    def _end(self, key: TopicPartition) -> None:
        """End the move, unless a broker that was left has yet to confirm it."""
        draft = self._draft
        if draft.leaving[key]:
            return
        del draft.leaving[key]
        partition = draft.cluster.partition(key)
        if partition is not None:
            self.ended_topics[key[0]] = None
            self.dropped[key] = partition.assignment.replicas
