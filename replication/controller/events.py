"""What the controller decides on, and what its decisions may be: the vocabulary of `controller.decide`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.channels.messages import BrokerRequest
from gregor.replication.store.metadata_store import Operation
from gregor.replication.store.nodes import BrokerRegistration, PartitionState, TopicAssignment

# -- events ------------------------------------------------------------------------------------------------------------


class Elected(NamedTuple):
    """This broker became the controller, or read everything again: the picture is `decide`'s argument, fresh.
    `doomed` are the names under /admin/delete_topics."""

    doomed: frozenset[str] = frozenset()


class BrokersChanged(NamedTuple):
    """All registrations, by id, with their epochs."""

    brokers: Mapping[int, tuple[BrokerRegistration, int]]


class TopicRead(NamedTuple):
    """What a topic's nodes say: the assignment, its node's version, and the unclean-election setting."""

    assignment: TopicAssignment
    version: int
    unclean: bool = False


class TopicsChanged(NamedTuple):
    """Topics that are new or whose node changed, and those whose node is gone."""

    topics: Mapping[str, TopicRead]
    gone: frozenset[str] = frozenset()


class TopicsQueuedForDeletion(NamedTuple):
    """Somebody asked for the deletion of these topics."""

    names: frozenset[str]


class ReplicasStopped(NamedTuple):
    """A broker answered a StopReplica: it has deleted these replicas, and cannot delete those."""

    broker_id: int
    deleted: frozenset[TopicPartition]
    refused: frozenset[TopicPartition] = frozenset()


class ReplicasFailed(NamedTuple):
    """A broker cannot serve these replicas: their disk failed."""

    broker_id: int
    failed: frozenset[TopicPartition]


class DiskEvents(NamedTuple):
    """These brokers say that a data folder of theirs failed, or is well again; their answers will tell of what."""

    brokers: frozenset[int]


class ReplicasRecovered(NamedTuple):
    """A broker serves these replicas, which it could not before."""

    broker_id: int
    recovered: frozenset[TopicPartition]


class IsrChanged(NamedTuple):
    """Leaders changed state nodes themselves: their new contents and versions."""

    states: Mapping[TopicPartition, tuple[PartitionState, int]]


class AlterPartitionReceived(NamedTuple):
    """Leaders asked for these states of their partitions, and may have them (controller.alter_partition)."""

    states: Mapping[TopicPartition, PartitionState]


class UncleanChanged(NamedTuple):
    """The unclean.leader.election.enable of topics is now this."""

    topics: Mapping[str, bool]


class PreferredElection(NamedTuple):
    """Give these partitions back to their preferred replicas."""

    partitions: frozenset[TopicPartition]


class UncleanElection(NamedTuple):
    """Let any live replica lead these partitions, where nobody does, whatever it lacks."""

    partitions: frozenset[TopicPartition]


class Reassigned(NamedTuple):
    """Send each of these partitions to these brokers, or with None back to where it came from."""

    targets: Mapping[TopicPartition, tuple[int, ...] | None]


class ShutdownAnnounced(NamedTuple):
    """A broker is about to stop and wants to be rid of what it leads."""

    broker_id: int


Event = (
    Elected
    | BrokersChanged
    | TopicsChanged
    | TopicsQueuedForDeletion
    | ReplicasStopped
    | ReplicasFailed
    | ReplicasRecovered
    | DiskEvents
    | IsrChanged
    | AlterPartitionReceived
    | UncleanChanged
    | PreferredElection
    | UncleanElection
    | Reassigned
    | ShutdownAnnounced
)

Step = Callable[[Event], Awaitable[bool]]
"""Decide on an event and act; False if the decision is void, as it was made on an old state of the cluster."""

# -- actions -----------------------------------------------------------------------------------------------------------


class Write(NamedTuple):
    """Operations on nodes, to be done under a check of the controller epoch; may be split between any two `parts`."""

    parts: tuple[tuple[Operation, ...], ...]


class WriteLast(NamedTuple):
    """As Write, but to be done when everything is sent: what must not be forgotten until then."""

    parts: tuple[tuple[Operation, ...], ...]


class DropReassignments(NamedTuple):
    """Requests to move these partitions are dealt with: take them out of /admin/reassign_partitions. Only those to
    these brokers, where any are named."""

    targets: Mapping[TopicPartition, tuple[int, ...] | None]


class Send(NamedTuple):
    """Requests to one broker stay in order."""

    broker_id: int
    request: BrokerRequest


class RemoveTopic(NamedTuple):
    """All replicas are gone: delete the topic's nodes, its configuration, and the request to delete it."""

    topic: str


class DropDeletion(NamedTuple):
    """The request to delete this topic came to nothing: there is no such topic."""

    topic: str


Action = Write | WriteLast | Send | RemoveTopic | DropDeletion | DropReassignments
