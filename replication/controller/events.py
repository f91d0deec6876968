"""The events that the controller decides on, and the actions that its decisions consist of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.channels.messages import BrokerRequest
from gregor.replication.controller.context import Cluster
from gregor.replication.store.metadata_store import Operation
from gregor.replication.store.nodes import BrokerRegistration, PartitionState, TopicAssignment

# -- events ------------------------------------------------------------------------------------------------------------


class Elected(NamedTuple):
    """This broker became the controller, or read all nodes again: the context given to `decide` was just read.
    `queued_for_deletion` are the names under /admin/delete_topics."""

    queued_for_deletion: frozenset[str] = frozenset()


class BrokersChanged(NamedTuple):
    """All registrations, by id, with their epochs."""

    brokers: Mapping[int, tuple[BrokerRegistration, int]]


class TopicRead(NamedTuple):
    """The contents of a topic's nodes: the assignment, its node's version, and the unclean-election setting."""

    assignment: TopicAssignment
    version: int
    unclean: bool = False


class TopicsChanged(NamedTuple):
    """Topics that are new or whose node changed, and those whose node is gone."""

    topics: Mapping[str, TopicRead]
    gone: frozenset[str] = frozenset()


class TopicsQueuedForDeletion(NamedTuple):
    """The deletion of these topics was requested."""

    names: frozenset[str]


class ReplicasStopped(NamedTuple):
    """A broker answered a StopReplica: it has deleted some of the replicas, and refused to delete the others."""

    broker_id: int
    deleted: frozenset[TopicPartition]
    refused: frozenset[TopicPartition] = frozenset()


class ReplicasFailed(NamedTuple):
    """A broker cannot serve these replicas: their disk failed."""

    broker_id: int
    failed: frozenset[TopicPartition]


class DiskEvents(NamedTuple):
    """A data folder of each of these brokers failed or works again; their responses will name the replicas in it."""

    brokers: frozenset[int]


class ReplicasRecovered(NamedTuple):
    """A broker serves these replicas, which it could not before."""

    broker_id: int
    recovered: frozenset[TopicPartition]


class IsrChanged(NamedTuple):
    """Leaders changed state nodes themselves: their new contents and versions."""

    states: Mapping[TopicPartition, tuple[PartitionState, int]]


class AlterPartitionReceived(NamedTuple):
    """Leaders requested these states of their partitions, and were granted them (controller.alter_partition)."""

    states: Mapping[TopicPartition, PartitionState]


class UncleanChanged(NamedTuple):
    """The unclean.leader.election.enable of topics has changed to these values."""

    topics: Mapping[str, bool]


class PreferredElection(NamedTuple):
    """Let the preferred replicas lead these partitions again."""

    partitions: frozenset[TopicPartition]


class UncleanElection(NamedTuple):
    """Let any live replica lead those of these partitions that have no leader, whatever records it lacks."""

    partitions: frozenset[TopicPartition]


class Reassigned(NamedTuple):
    """Move each of these partitions to these brokers, or with None back to where it came from."""

    targets: Mapping[TopicPartition, tuple[int, ...] | None]


class ShutdownAnnounced(NamedTuple):
    """A broker is about to stop; its leadership is to move to other brokers."""

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

Step = Callable[[Event], Awaitable[Cluster | None]]
"""Decide on an event, carry the decision out, and return the new context; None if the decision is void because the
context was outdated: then all nodes will be read again."""

# -- actions -----------------------------------------------------------------------------------------------------------


class Write(NamedTuple):
    """Operations on nodes, done under a check of the controller epoch; may be split between any two `parts`."""

    parts: tuple[tuple[Operation, ...], ...]
    unclean_elections: int = 0
    """Leaders among them that were not in sync before."""


class WriteLast(NamedTuple):
    """As Write, but done after everything is sent: until then the nodes keep what the next controller has to know."""

    parts: tuple[tuple[Operation, ...], ...]


class DropReassignments(NamedTuple):
    """Requests to move these partitions are handled: remove them from /admin/reassign_partitions. With brokers, only a
    request to move the partition to these brokers is removed."""

    targets: Mapping[TopicPartition, tuple[int, ...] | None]


class Send(NamedTuple):
    """Send a request to a broker; requests to one broker stay in order."""

    broker_id: int
    request: BrokerRequest


class RemoveTopic(NamedTuple):
    """All replicas are gone: delete the topic's nodes, its configuration, and the request to delete it."""

    topic: str


class DropDeletion(NamedTuple):
    """Remove the request to delete this topic: there is no such topic."""

    topic: str


Action = Write | WriteLast | Send | RemoveTopic | DropDeletion | DropReassignments
