"""The controller context that a decision builds, with the node writes and notifications that lead to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.controller.context import NO_NODE, Cluster, Partition, Topic
from gregor.replication.controller.election import NO_LEADER
from gregor.replication.controller.reassignment import before_all_have_left, is_moving
from gregor.replication.store.metadata_store import Create, Operation, Set
from gregor.replication.store.nodes import (
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    encode_state,
    encode_topic,
    partition_path,
    partitions_path,
    state_path,
    topic_path,
)


class ClusterDraft:
    """The next controller context while `decide` works on it.

    The table of topics is copied at the start, the partitions of a topic at their first change: the context that the
    decision started from stays as it is.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._topics = dict(cluster.topics)
        self._copied: set[str] = set()
        self._cluster = cluster._replace(topics=self._topics)
        self.moving = set(cluster.moving)
        self.leaving = dict(cluster.leaving)
        self.writes: list[tuple[Operation, ...]] = []
        self.unclean_elections = 0
        """Leaders of `writes` that were not in sync before."""
        self.changed_states: dict[TopicPartition, None] = {}
        """Partitions with another leader or ISR: brokers and clients are notified."""
        self.changed_metadata: dict[TopicPartition, None] = {}
        """Partitions whose metadata has changed otherwise: only clients are notified."""
        self.created: set[TopicPartition] = set()
        """Partitions that have their first leader."""
        self.stops: dict[tuple[int, bool], list[TopicPartition]] = {}
        """Replicas to stop, by broker and whether their logs are deleted."""

    @property
    def cluster(self) -> Cluster:
        """Return the context as it is by now, except that `moving` and `leaving` of the draft are newer."""
        return self._cluster

    def finish(self) -> Cluster:
        """Return the context with all changes."""
        if self.moving != self._cluster.moving:
            self.replace(moving=frozenset(self.moving))
        if self.leaving != self._cluster.leaving:
            self.replace(leaving=self.leaving)
        return self._cluster

    def replace(self, **fields: Any) -> None:
        """Replace fields of the context other than its topics."""
        self._cluster = self._cluster._replace(**fields)

    # -- topics ----------------------------------------------------------------------------------------------------

    def put_topic(self, name: str, topic: Topic) -> None:
        self._topics[name] = topic

    def remove_topic(self, name: str) -> None:
        """Remove a topic, with the moves of its partitions."""
        if self._topics.pop(name, None) is not None:
            self.moving = {key for key in self.moving if key[0] != name}
            self.leaving = {key: ids for key, ids in self.leaving.items() if key[0] != name}

    def write_topic(self, name: str, writes: list[tuple[Operation, ...]] | None = None) -> None:
        """Write the node of a topic, by `writes` if given."""
        topic = self._topics[name]
        written = {
            i: before_all_have_left(p.assignment, self.leaving.get(TopicPartition(name, i), ()))
            for i, p in topic.partitions.items()
        }
        assignment = TopicAssignment(topic.topic_id, written)
        writes = self.writes if writes is None else writes
        writes.append((Set(topic_path(name), encode_topic(assignment), topic.version),))
        self._topics[name] = topic._replace(version=topic.version + 1)

    # -- partitions ------------------------------------------------------------------------------------------------

    def put(self, key: TopicPartition, partition: Partition) -> None:
        name, index = key
        topic = self._topics[name]
        if name not in self._copied:
            self._copied.add(name)
            topic = self._topics[name] = topic._replace(partitions=dict(topic.partitions))
        topic.partitions[index] = partition

    def assign(self, key: TopicPartition, partition: Partition, assignment: ReplicaAssignment) -> None:
        """Give a partition another assignment; the node of its topic is yet to be written."""
        self.leaving.pop(key, None)
        self.put(key, partition._replace(assignment=assignment))
        (self.moving.add if is_moving(assignment) else self.moving.discard)(key)

    def change_state(self, key: TopicPartition, partition: Partition, state: PartitionState) -> None:
        """Give a partition another leader or ISR: write its node, and have brokers and clients notified."""
        name, index = key
        if partition.version == NO_NODE:
            parents: tuple[Operation, ...] = (Create(partition_path(name, index)),)
            if not any(other.version != NO_NODE for other in self._topics[name].partitions.values()):
                parents = (Create(partitions_path(name)), *parents)
            self.writes.append((*parents, Create(state_path(name, index), encode_state(state))))
            self.created.add(key)
            self.put(key, partition._replace(state=state, version=partition.version + 1))
        else:
            if partition.state is not None and state.leader not in (NO_LEADER, *partition.state.isr):
                self.unclean_elections += 1
            self.write_state(key, partition, state)
        self.changed_states[key] = None

    def write_state(self, key: TopicPartition, partition: Partition, state: PartitionState) -> None:
        """Write the state of a partition that has a node."""
        self.writes.append((Set(state_path(*key), encode_state(state), partition.version),))
        self.put(key, partition._replace(state=state, version=partition.version + 1))

    def stop_replicas(self, broker_id: int, keys: Iterable[TopicPartition], *, delete: bool) -> None:
        """Stop replicas on one broker, and with `delete` remove their logs."""
        self.stops.setdefault((broker_id, delete), []).extend(keys)
