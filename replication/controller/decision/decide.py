"""The controller's decisions, pure: `decide(cluster, event) -> (cluster, actions)`.

The shell (controller.loop) watches the nodes, turns what it reads into events and carries out the actions in order;
the new context is valid once the writes among them are done. If a write is refused because a node has changed in the
meantime, the shell discards the decision, reads all nodes again and continues with `Elected`. Hence a decision may rely
on its writes: a conditional set of version v makes version v + 1.

Every event runs the same course: change the context, hold the elections that the change requires, and notify the
brokers of the difference. The order of the notifications: live brokers first (an Apache Kafka broker follows only
leaders that it believes alive), then LeaderAndIsr, then the metadata that sends clients to the new leaders.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from gregor.protocol.ids import ZERO_UUID, Uuid, random_uuid
from gregor.protocol.messages import UpdateMetadataRequest
from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.controller.context import NO_NODE, Cluster, LiveBroker, Partition, Topic
from gregor.replication.controller.decision.deletions import TopicDeletions
from gregor.replication.controller.decision.draft import ClusterDraft
from gregor.replication.controller.decision.elections import (
    demote_returned,
    elect_preferred_leaders,
    elect_unclean_leaders,
    move_leadership,
    update_all_states,
    update_states,
)
from gregor.replication.controller.decision.moves import PartitionMoves
from gregor.replication.controller.events import (
    Action,
    AlterPartitionReceived,
    BrokersChanged,
    DiskEvents,
    DropReassignments,
    Elected,
    Event,
    IsrChanged,
    PreferredElection,
    Reassigned,
    ReplicasFailed,
    ReplicasRecovered,
    ReplicasStopped,
    Send,
    ShutdownAnnounced,
    TopicRead,
    TopicsChanged,
    TopicsQueuedForDeletion,
    UncleanChanged,
    UncleanElection,
    Write,
    WriteLast,
)
from gregor.replication.controller.reassignment import is_moving
from gregor.replication.controller.requests import (
    KnownStates,
    leader_and_isr,
    metadata_of,
    stop_replicas,
    update_metadata,
)
from gregor.replication.store.metadata_store import Operation
from gregor.replication.store.nodes import BrokerRegistration, PartitionState


def decide(cluster: Cluster, event: Event, listener: str = "PLAINTEXT") -> tuple[Cluster, list[Action]]:
    """Return the new context and the actions that lead to it. `listener` names the one for traffic between brokers."""
    decision = _Decision(cluster, listener)
    decision.apply(event)
    return decision.finish()


class _Decision:
    """One decision in the making; lives for one call of `decide`."""

    def __init__(self, cluster: Cluster, listener: str) -> None:
        self._listener = listener
        self._draft = ClusterDraft(cluster)
        self._moves = PartitionMoves(self._draft)
        self._deletions = TopicDeletions(self._draft)
        self._new_brokers: set[int] = set()
        """Brokers to which everything is sent: they have no state yet."""
        self._rechecked_brokers: frozenset[int] = frozenset()
        """Brokers to which the state of every replica is sent again: their responses name those that they cannot
        serve."""
        self._brokers_changed = False

    def apply(self, event: Event) -> None:
        match event:
            case Elected(queued_for_deletion):
                self._elected(queued_for_deletion)
            case BrokersChanged(brokers):
                self._brokers_registered(brokers)
            case TopicsChanged(topics, gone):
                self._topics_read(topics, gone)
            case TopicsQueuedForDeletion(names):
                self._deletions.begin(names)
            case ReplicasStopped(broker_id, deleted, refused):
                self._deletions.confirm(broker_id, deleted)
                stopped = deleted | refused
                self._moves.confirm_left(broker_id, [key for key in stopped if key in self._draft.leaving])
            case ReplicasFailed(broker_id, failed):
                self._replicas_failed(broker_id, failed)
            case ReplicasRecovered(broker_id, recovered):
                self._replicas_recovered(broker_id, recovered)
            case DiskEvents(brokers):
                self._rechecked_brokers = brokers & self._draft.cluster.brokers.keys()
                self._deletions.stop_undeleted(self._rechecked_brokers)
            case IsrChanged(states):
                self._isr_changed(states)
            case AlterPartitionReceived(granted):
                self._alter_partitions(granted)
            case UncleanChanged(topics):
                self._unclean_changed(topics)
            case PreferredElection(keys):
                elect_preferred_leaders(self._draft, sorted(keys))
            case UncleanElection(keys):
                elect_unclean_leaders(self._draft, sorted(keys))
            case Reassigned(targets):
                self._moves.begin(targets)
            case ShutdownAnnounced(broker_id):
                self._shut_down(broker_id)
        self._moves.complete()
        self._deletions.begin_queued(self._moves.ended_topics)

    def _elected(self, queued_for_deletion: frozenset[str]) -> None:
        cluster = self._draft.cluster
        self._new_brokers = set(cluster.brokers)
        self._brokers_changed = True
        self._give_topic_ids(cluster.topics)
        self._deletions.begin(queued_for_deletion)
        demote_returned(self._draft)
        update_all_states(self._draft)
        self._moves.resume()

    # -- brokers ---------------------------------------------------------------------------------------------------

    def _brokers_registered(self, registrations: Mapping[int, tuple[BrokerRegistration, int]]) -> None:
        draft = self._draft
        before = draft.cluster.brokers
        lost = {
            id_ for id_, broker in before.items() if id_ not in registrations or registrations[id_][1] != broker.epoch
        }
        self._new_brokers = {id_ for id_ in registrations if id_ in lost or id_ not in before}
        if not (lost or self._new_brokers or any(registrations[id_][0] != before[id_].registration for id_ in before)):
            return
        self._brokers_changed = True
        failed = frozenset(replica for replica in draft.cluster.failed if replica[2] not in lost)
        # A broker that is back when the nodes are read counts as gone first: the elected successor keeps leading.
        survivors = {id_: broker for id_, broker in before.items() if id_ not in lost}
        draft.replace(brokers=survivors, failed=failed)
        if lost:
            update_all_states(draft)
        for id_ in lost:
            left = self._moves.left_by(id_)
            if id_ not in registrations:
                self._moves.confirm_left(id_, left)
            elif left:  # the request to its life before may be lost
                draft.stop_replicas(id_, left, delete=True)
        brokers = {
            id_: LiveBroker(registration, epoch, id_ in survivors and survivors[id_].shutting_down)
            for id_, (registration, epoch) in registrations.items()
        }
        draft.replace(brokers=brokers)
        if self._new_brokers:
            update_all_states(draft)
        # Clients are notified which replicas are offline, also where leader and ISR stay.
        moved = lost ^ self._new_brokers
        for key, topic, partition in draft.cluster.partitions():
            if not topic.deleting and not moved.isdisjoint(partition.assignment.replicas):
                draft.changed_metadata[key] = None
        self._deletions.stop_undeleted(self._new_brokers)

    def _shut_down(self, broker_id: int) -> None:
        brokers = self._draft.cluster.brokers
        broker = brokers.get(broker_id)
        if broker is not None:
            self._draft.replace(brokers={**brokers, broker_id: broker._replace(shutting_down=True)})
            move_leadership(self._draft, broker_id)

    def _replicas_failed(self, broker_id: int, keys: frozenset[TopicPartition]) -> None:
        cluster = self._draft.cluster
        hosted = sorted(key for key in keys if cluster.partition(key) is not None)
        failed = cluster.failed | {(*key, broker_id) for key in hosted}
        if failed != cluster.failed and broker_id in cluster.brokers:
            self._offline_changed(failed, hosted)

    def _replicas_recovered(self, broker_id: int, keys: frozenset[TopicPartition]) -> None:
        cluster = self._draft.cluster
        failed = cluster.failed - {(*key, broker_id) for key in keys}
        if failed != cluster.failed:
            self._offline_changed(failed, sorted(key for key in keys if cluster.partition(key) is not None))

    def _offline_changed(self, failed: frozenset[tuple[str, int, int]], keys: list[TopicPartition]) -> None:
        self._draft.replace(failed=failed)
        self._draft.changed_metadata.update(dict.fromkeys(keys))
        update_states(self._draft, keys)

    # -- topics ----------------------------------------------------------------------------------------------------

    def _topics_read(self, topics: Mapping[str, TopicRead], gone: frozenset[str]) -> None:
        draft = self._draft
        for name in gone:
            draft.remove_topic(name)
        for name, read in topics.items():
            known = draft.cluster.topics.get(name)
            topic_id, partitions = read.assignment
            if known is None:
                made = {index: Partition(assignment) for index, assignment in partitions.items()}
                draft.put_topic(name, Topic(topic_id, made, read.version, read.unclean))
                draft.moving.update(TopicPartition(name, index) for index, one in partitions.items() if is_moving(one))
            else:
                added = {i: Partition(a) for i, a in partitions.items() if i not in known.partitions}
                merged = known.partitions if known.deleting else {**known.partitions, **added}
                draft.put_topic(name, known._replace(partitions=merged, version=read.version, unclean=read.unclean))
                # An old tool that adds partitions writes the node without the topic id.
                if topic_id == ZERO_UUID and known.topic_id != ZERO_UUID:
                    draft.write_topic(name)
        self._give_topic_ids(topics)
        topics_now = draft.cluster.topics
        update_states(draft, [TopicPartition(name, index) for name in topics for index in topics_now[name].partitions])

    def _give_topic_ids(self, names: Iterable[str]) -> None:
        for name in list(names):
            topic = self._draft.cluster.topics[name]
            if topic.topic_id == ZERO_UUID:
                self._draft.put_topic(name, topic._replace(topic_id=random_uuid()))
                self._draft.write_topic(name)

    # -- partitions ------------------------------------------------------------------------------------------------

    def _isr_changed(self, states: Mapping[TopicPartition, tuple[PartitionState, int]]) -> None:
        for key, (state, version) in states.items():
            partition = self._draft.cluster.partition(key)
            if partition is not None and version > partition.version:
                self._draft.put(key, partition._replace(state=state, version=version))
                self._draft.changed_metadata[key] = None

    def _alter_partitions(self, granted: Mapping[TopicPartition, PartitionState]) -> None:
        for key, state in granted.items():
            partition = self._draft.cluster.partition(key)
            if partition is not None and partition.version != NO_NODE:
                self._draft.write_state(key, partition, state)
                self._draft.changed_metadata[key] = None

    def _unclean_changed(self, topics: Mapping[str, bool]) -> None:
        for name, unclean in topics.items():
            topic = self._draft.cluster.topics.get(name)
            if topic is not None:
                self._draft.put_topic(name, topic._replace(unclean=unclean))
                update_states(self._draft, [TopicPartition(name, index) for index in topic.partitions])

    # -- actions ---------------------------------------------------------------------------------------------------

    def finish(self) -> tuple[Cluster, list[Action]]:
        """Return the new context and the actions."""
        draft = self._draft
        # The nodes of these topics name the brokers that were left until everything is sent.
        last_writes: list[tuple[Operation, ...]] = []
        for name in self._moves.ended_topics:
            draft.write_topic(name, last_writes)
        cluster = draft.finish()
        actions: list[Action] = [Write(tuple(draft.writes), draft.unclean_elections)] if draft.writes else []
        actions += self._notifications(cluster)
        for (id_, delete), keys in sorted(draft.stops.items()):
            request = stop_replicas(cluster, id_, keys, delete) if id_ in cluster.brokers else None
            if request is not None:
                actions.append(Send(id_, request))
        if last_writes:
            actions.append(WriteLast(tuple(last_writes)))
        if self._moves.dropped:
            actions.append(DropReassignments(self._moves.dropped))
        return cluster, actions + self._deletions.actions

    def _notifications(self, cluster: Cluster) -> list[Action]:
        """Return the UpdateMetadata and LeaderAndIsr requests, in the order of the module's docstring."""
        draft, brokers = self._draft, sorted(cluster.brokers)
        actions: list[Action] = []
        if self._brokers_changed:
            actions.extend(Send(id_, update_metadata(cluster, id_, [])) for id_ in brokers)
        everything: list[TopicPartition] = []
        if self._new_brokers or self._rechecked_brokers:
            everything = [key for key, topic, _ in cluster.partitions() if not topic.deleting]
        shared_states: KnownStates = {}
        for id_ in brokers:
            keys = everything if id_ in self._new_brokers or id_ in self._rechecked_brokers else draft.changed_states
            request = leader_and_isr(cluster, id_, keys, draft.created, self._listener, shared_states)
            if request is not None:
                actions.append(Send(id_, request))
        # One list for all brokers that know the rest, and one for those that have registered. The process of the latter
        # may have lived on with what it knew: topics whose deletion began while it was away are in its metadata.
        begun = _deleted(cluster, self._deletions.begun)
        changes = metadata_of(cluster, {**draft.changed_states, **draft.changed_metadata}, begun)
        whole: list[UpdateMetadataRequest.UpdateMetadataTopicState] = []
        if self._new_brokers:
            deleting = (name for name, topic in cluster.topics.items() if topic.deleting)
            whole = metadata_of(cluster, everything, _deleted(cluster, deleting))
        for id_ in brokers:
            states = whole if id_ in self._new_brokers else changes
            if states:
                actions.append(Send(id_, update_metadata(cluster, id_, states)))
        return actions


def _deleted(cluster: Cluster, names: Iterable[str]) -> list[tuple[str, Uuid, Collection[int]]]:
    """Return topics that are being deleted as `metadata_of` expects them."""
    topics = ((name, cluster.topics[name]) for name in names)
    return [(name, topic.topic_id, sorted(topic.partitions)) for name, topic in topics]
