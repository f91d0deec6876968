"""The controller's picture of the cluster: immutable values, replaced by each decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from gregor.protocol.ids import Uuid
from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.store.nodes import BrokerRegistration, PartitionState, ReplicaAssignment

NO_NODE = -1


class Phase(Enum):
    """States of a partition, as Kafka's PartitionStateMachine names them. They follow from its nodes:

    | phase        | means                                           | may follow             |
    |--------------|-------------------------------------------------|------------------------|
    | NON_EXISTENT | not assigned, or its topic is being deleted     | any                    |
    | NEW          | assigned, never had a leader: no state node     | NON_EXISTENT           |
    | ONLINE       | a live broker leads it                          | NEW, ONLINE, OFFLINE   |
    | OFFLINE      | it had a leader; that one is gone, nobody leads | ONLINE                 |
    """

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"


LEGAL_PREDECESSORS: Mapping[Phase, frozenset[Phase]] = {
    Phase.NON_EXISTENT: frozenset(Phase),
    Phase.NEW: frozenset({Phase.NON_EXISTENT}),
    Phase.ONLINE: frozenset({Phase.NEW, Phase.ONLINE, Phase.OFFLINE}),
    Phase.OFFLINE: frozenset({Phase.ONLINE}),
}


class LiveBroker(NamedTuple):
    registration: BrokerRegistration
    epoch: int
    """Creation id of its registration node: tells one life of the broker from the next."""
    shutting_down: bool = False


class Partition(NamedTuple):
    assignment: ReplicaAssignment
    state: PartitionState | None = None
    version: int = NO_NODE
    """Data version of the state node, which is the partition epoch. With a node, but no state, it cannot be read: who
    may lead is not known."""


class Topic(NamedTuple):
    topic_id: Uuid
    partitions: dict[int, Partition]
    version: int = 0
    """Data version of the topic node."""
    unclean: bool = False
    """unclean.leader.election.enable of the topic."""
    undeleted: frozenset[tuple[int, int]] | None = None
    """While the topic is being deleted: the replicas (partition, broker) that did not confirm yet. Else None."""
    doomed: bool = False
    """Deletion was asked for, and waits for partitions that are on their way to other brokers."""

    @property
    def deleting(self) -> bool:
        return self.undeleted is not None


class Cluster(NamedTuple):
    """Everything decisions are made from. `epoch` is the controller epoch."""

    controller_id: int
    epoch: int
    brokers: Mapping[int, LiveBroker] = {}
    topics: Mapping[str, Topic] = {}
    failed: frozenset[tuple[str, int, int]] = frozenset()
    """Replicas (topic, partition, broker) on a failed disk of a live broker."""
    moving: frozenset[TopicPartition] = frozenset()
    """Partitions on their way to other brokers (gregor.replication.controller.reassignment)."""
    returned: frozenset[tuple[str, int, int]] = frozenset()
    """Replicas (topic, partition, broker) in sync by a state that was written before their broker registered: it was
    away since, and no controller has acted on that. Only in a picture that was just read."""
    leaving: Mapping[TopicPartition, frozenset[int]] = {}
    """Live brokers that partitions which have arrived have left, and that did not confirm it yet: until then the node
    of the topic names them, so that the next controller tells them."""

    def partition(self, key: TopicPartition) -> Partition | None:
        topic = self.topics.get(key[0])
        return None if topic is None else topic.partitions.get(key[1])

    def partitions(self) -> Iterator[tuple[TopicPartition, Topic, Partition]]:
        for name, topic in self.topics.items():
            for index, partition in topic.partitions.items():
                yield TopicPartition(name, index), topic, partition

    def alive(self, key: TopicPartition, partition: Partition) -> list[int]:
        """Replicas that can serve: broker up, disk fine."""
        return [
            broker_id
            for broker_id in partition.assignment.replicas
            if broker_id in self.brokers and (*key, broker_id) not in self.failed
        ]

    def electable(self, key: TopicPartition, partition: Partition) -> list[int]:
        """Replicas that can serve for longer: not shutting down either."""
        return [id_ for id_ in self.alive(key, partition) if not self.brokers[id_].shutting_down]

    def offline_replicas(self, key: TopicPartition, partition: Partition) -> list[int]:
        alive = self.alive(key, partition)
        return [broker_id for broker_id in partition.assignment.replicas if broker_id not in alive]

    def phase(self, key: TopicPartition) -> Phase:
        topic = self.topics.get(key[0])
        partition = self.partition(key)
        if topic is None or partition is None or topic.deleting:
            return Phase.NON_EXISTENT
        if partition.state is None:
            return Phase.NEW
        return Phase.ONLINE if partition.state.leader in self.alive(key, partition) else Phase.OFFLINE
