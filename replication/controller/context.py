"""The controller context: what the controller knows of the cluster. Immutable values, replaced by each decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gregor.protocol.ids import Uuid
from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.store.nodes import BrokerRegistration, PartitionState, ReplicaAssignment

NO_NODE = -1


class LiveBroker(NamedTuple):
    registration: BrokerRegistration
    epoch: int
    """Creation id of its registration node: distinguishes one life of the broker from the next."""
    shutting_down: bool = False


class Partition(NamedTuple):
    assignment: ReplicaAssignment
    state: PartitionState | None = None
    version: int = NO_NODE
    """Data version of the state node, which is the partition epoch. A partition with a version but no state has a node
    that cannot be read: it is not known which replicas may lead."""


class Topic(NamedTuple):
    topic_id: Uuid
    partitions: dict[int, Partition]
    version: int = 0
    """Data version of the topic node."""
    unclean: bool = False
    """unclean.leader.election.enable of the topic."""
    undeleted: frozenset[tuple[int, int]] | None = None
    """While the topic is being deleted: the replicas (partition, broker) that did not confirm yet. Else None."""
    deletion_queued: bool = False
    """The deletion was requested and waits for partitions that move to other brokers."""

    @property
    def deleting(self) -> bool:
        return self.undeleted is not None


class Cluster(NamedTuple):
    """The input of every decision. `epoch` is the controller epoch."""

    controller_id: int
    epoch: int
    brokers: Mapping[int, LiveBroker] = {}
    topics: Mapping[str, Topic] = {}
    failed: frozenset[tuple[str, int, int]] = frozenset()
    """Replicas (topic, partition, broker) on a failed disk of a live broker."""
    moving: frozenset[TopicPartition] = frozenset()
    """Partitions that move to other brokers (gregor.replication.controller.reassignment)."""
    returned: frozenset[tuple[str, int, int]] = frozenset()
    """Replicas (topic, partition, broker) in sync by a state that was written before their broker registered: the
    broker was away in the meantime, and no controller has acted on that. Only in a context that was just read."""
    leaving: Mapping[TopicPartition, frozenset[int]] = {}
    """Of partitions whose move is complete: the live brokers that they have left and that did not confirm it yet. Until
    then the node of the topic names these brokers, so that the next controller notifies them."""

    def partition(self, key: TopicPartition) -> Partition | None:
        topic = self.topics.get(key[0])
        return None if topic is None else topic.partitions.get(key[1])

    def partitions(self) -> Iterator[tuple[TopicPartition, Topic, Partition]]:
        for name, topic in self.topics.items():
            for index, partition in topic.partitions.items():
                yield TopicPartition(name, index), topic, partition

    def alive(self, key: TopicPartition, partition: Partition) -> list[int]:
        """Return the replicas that can serve: the broker is alive, and the disk works."""
        return [
            broker_id
            for broker_id in partition.assignment.replicas
            if broker_id in self.brokers and (*key, broker_id) not in self.failed
        ]

    def electable(self, key: TopicPartition, partition: Partition) -> list[int]:
        """Return the alive replicas whose brokers are not shutting down."""
        return [id_ for id_ in self.alive(key, partition) if not self.brokers[id_].shutting_down]

    def offline_replicas(self, key: TopicPartition, partition: Partition) -> list[int]:
        alive = self.alive(key, partition)
        return [broker_id for broker_id in partition.assignment.replicas if broker_id not in alive]
