"""The controller's decisions, pure: `decide(cluster, event) -> (cluster, actions)`.

The shell (controller.loop) watches the nodes, turns what it reads into events, does the actions in order, and only
then takes the new picture for true. If a write is refused because a node has changed meanwhile, it throws the decision
away, reads everything again and goes on from `Elected`. Hence a decision may count on its writes: a conditional set
of version v makes version v + 1.

Every event runs the same course: change the picture, settle the partitions concerned (elections), and say the
difference. The order of what is said: live brokers first (an Apache Kafka broker follows only leaders it believes
alive), then LeaderAndIsr, then the metadata that sends clients to the new leaders.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from gregor.protocol.ids import ZERO_UUID, random_uuid
from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.controller.context import NO_NODE, Cluster, LiveBroker, Partition, Topic
from gregor.replication.controller.election import (
    elect_after_failures,
    elect_after_move,
    elect_first,
    elect_for_shutdown,
    elect_preferred,
)
from gregor.replication.controller.events import (
    Action,
    AlterPartitionReceived,
    BrokersChanged,
    DiskEvents,
    DropDeletion,
    DropReassignments,
    Elected,
    Event,
    IsrChanged,
    PreferredElection,
    Reassigned,
    RemoveTopic,
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
from gregor.replication.controller.reassignment import (
    before_all_have_left,
    can_change,
    has_arrived,
    is_moving,
    reassigned,
    target_of,
    unneeded,
)
from gregor.replication.controller.requests import (
    KnownStates,
    leader_and_isr,
    metadata_of,
    stop_replicas,
    update_metadata,
)
from gregor.replication.store.metadata_store import Create, Operation, Set
from gregor.replication.store.nodes import (
    BrokerRegistration,
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


def decide(cluster: Cluster, event: Event, listener: str = "PLAINTEXT") -> tuple[Cluster, list[Action]]:
    """The new picture, and what to do. `listener` is the name of the one that brokers talk on."""
    decision = _Decision(cluster, listener)
    decision.take(event)
    return decision.cluster, decision.actions()


class _Decision:
    """One decision in the making; lives for one call of `decide`."""

    def __init__(self, cluster: Cluster, listener: str) -> None:
        # The table of topics is copied now, a topic's partitions when first touched: the caller's picture stays.
        self._topics = dict(cluster.topics)
        self._copied: set[str] = set()
        self.cluster = cluster._replace(topics=self._topics)
        self._listener = listener
        self._writes: list[tuple[Operation, ...]] = []
        self._changed: dict[TopicPartition, None] = {}  # led or in sync differently: brokers and clients hear of it
        self._news: dict[TopicPartition, None] = {}  # only clients need to hear
        self._created: set[TopicPartition] = set()
        self._fresh: set[int] = set()  # brokers that know nothing yet
        self._asked: frozenset[int] = frozenset()  # brokers that are told all again, to hear what they cannot serve
        self._brokers_changed = False
        self._queued_for_deletion: list[str] = []
        self._stops: dict[tuple[int, bool], list[TopicPartition]] = {}
        self._last: list[Action] = []
        self._moving = set(cluster.moving)
        self._leaving = dict(cluster.leaving)
        self._moved: dict[str, None] = {}  # topics of partitions whose moves are over
        self._dropped: dict[TopicPartition, tuple[int, ...] | None] = {}

    def take(self, event: Event) -> None:
        match event:
            case Elected(doomed):
                self._fresh = set(self.cluster.brokers)
                self._brokers_changed = True
                self._give_topic_ids(self.cluster.topics)
                self._queue_for_deletion(doomed)
                self._pass_over_returned()
                self._settle_all()
                # The leaders may not have heard of it from the controller before.
                for key in sorted(self._moving - self._changed.keys()):
                    self._go_on(key, ())
            case BrokersChanged(brokers):
                self._brokers_now(brokers)
            case TopicsChanged(topics, gone):
                self._topics_now(topics, gone)
            case TopicsQueuedForDeletion(names):
                self._queue_for_deletion(names)
            case ReplicasStopped(broker_id, deleted, refused):
                self._stopped(broker_id, deleted)
                self._left(broker_id, [key for key in deleted | refused if key in self._leaving])
            case ReplicasFailed(broker_id, failed):
                self._failed(broker_id, failed)
            case ReplicasRecovered(broker_id, recovered):
                self._recovered(broker_id, recovered)
            case DiskEvents(brokers):
                self._asked = brokers & self.cluster.brokers.keys()
                self._stop_undeleted(self._asked)
            case IsrChanged(states):
                for key, (state, version) in states.items():
                    partition = self.cluster.partition(key)
                    if partition is not None and version > partition.version:
                        self._put(key, partition._replace(state=state, version=version))
                        self._news[key] = None
            case AlterPartitionReceived(wanted):
                for key, state in wanted.items():
                    partition = self.cluster.partition(key)
                    if partition is not None and partition.version != NO_NODE:
                        self._writes.append((Set(state_path(*key), encode_state(state), partition.version),))
                        self._put(key, partition._replace(state=state, version=partition.version + 1))
                        self._news[key] = None
            case UncleanChanged(topics):
                for name, unclean in topics.items():
                    topic = self.cluster.topics.get(name)
                    if topic is not None:
                        self._topics[name] = topic._replace(unclean=unclean)
                        self._settle(TopicPartition(name, index) for index in topic.partitions)
            case PreferredElection(keys):
                self._elect(sorted(keys), self._preferred)
            case UncleanElection(keys):
                self._elect(sorted(keys), self._unclean)
            case Reassigned(targets):
                self._reassign(targets)
            case ShutdownAnnounced(broker_id):
                self._shut_down(broker_id)
        self._arrive()
        if self._moving != self.cluster.moving:
            self.cluster = self.cluster._replace(moving=frozenset(self._moving))
        if self._leaving != self.cluster.leaving:
            self.cluster = self.cluster._replace(leaving=self._leaving)

    # -- brokers ---------------------------------------------------------------------------------------------------

    def _brokers_now(self, registrations: Mapping[int, tuple[BrokerRegistration, int]]) -> None:
        before = self.cluster.brokers
        lost = {
            id_ for id_, broker in before.items() if id_ not in registrations or registrations[id_][1] != broker.epoch
        }
        self._fresh = {id_ for id_ in registrations if id_ in lost or id_ not in before}
        if not (lost or self._fresh or any(registrations[id_][0] != before[id_].registration for id_ in before)):
            return
        self._brokers_changed = True
        failed = frozenset(replica for replica in self.cluster.failed if replica[2] not in lost)
        # A broker that came back between two looks first counts as gone: whoever took over keeps the lead.
        survivors = {id_: broker for id_, broker in before.items() if id_ not in lost}
        self.cluster = self.cluster._replace(brokers=survivors, failed=failed)
        if lost:
            self._settle_all()
        for id_ in lost:
            left = [key for key, ids in self._leaving.items() if id_ in ids]
            if id_ not in registrations:
                self._left(id_, left)
            elif left:  # its life before may not have heard of it
                self._stops[id_, True] = left
        brokers = {
            id_: LiveBroker(registration, epoch, id_ in survivors and survivors[id_].shutting_down)
            for id_, (registration, epoch) in registrations.items()
        }
        self.cluster = self.cluster._replace(brokers=brokers)
        if self._fresh:
            self._settle_all()
        # Where a replica went or came, clients hear which are offline, also if leader and ISR stay.
        moved = lost ^ self._fresh
        for key, topic, partition in self.cluster.partitions():
            if not topic.deleting and not moved.isdisjoint(partition.assignment.replicas):
                self._news[key] = None
        self._stop_undeleted(self._fresh)

    def _failed(self, broker_id: int, keys: frozenset[TopicPartition]) -> None:
        hosted = {key for key in keys if self.cluster.partition(key) is not None}
        failed = self.cluster.failed | {(*key, broker_id) for key in hosted}
        if failed != self.cluster.failed and broker_id in self.cluster.brokers:
            self.cluster = self.cluster._replace(failed=failed)
            self._news.update(dict.fromkeys(sorted(hosted)))
            self._settle(sorted(hosted))

    def _recovered(self, broker_id: int, keys: frozenset[TopicPartition]) -> None:
        failed = self.cluster.failed - {(*key, broker_id) for key in keys}
        if failed != self.cluster.failed:
            self.cluster = self.cluster._replace(failed=failed)
            hosted = sorted(key for key in keys if self.cluster.partition(key) is not None)
            self._news.update(dict.fromkeys(hosted))
            self._settle(hosted)

    def _shut_down(self, broker_id: int) -> None:
        broker = self.cluster.brokers.get(broker_id)
        if broker is None:
            return
        brokers = {**self.cluster.brokers, broker_id: broker._replace(shutting_down=True)}
        self.cluster = self.cluster._replace(brokers=brokers)
        hosted = [
            key for key, t, p in self.cluster.partitions() if broker_id in p.assignment.replicas and not t.deleting
        ]

        def elect(key: TopicPartition, partition: Partition, state: PartitionState) -> PartitionState | None:
            electable = self.cluster.electable(key, partition)
            return elect_for_shutdown(partition.assignment.replicas, state, broker_id, electable, self.cluster.epoch)

        followed = [key for key in hosted if self._is_follower(key, broker_id)]
        self._elect(hosted, elect)
        if followed:
            self._stops[broker_id, False] = followed

    def _is_follower(self, key: TopicPartition, broker_id: int) -> bool:
        partition = self.cluster.partition(key)
        return partition is not None and partition.state is not None and partition.state.leader != broker_id

    # -- topics ----------------------------------------------------------------------------------------------------

    def _topics_now(self, topics: Mapping[str, TopicRead], gone: frozenset[str]) -> None:
        for name in gone:
            if self._topics.pop(name, None) is not None:
                self._moving = {key for key in self._moving if key[0] != name}
                self._leaving = {key: ids for key, ids in self._leaving.items() if key[0] != name}
        for name, read in topics.items():
            known = self.cluster.topics.get(name)
            topic_id, partitions = read.assignment
            if known is None:
                made = {index: Partition(assignment) for index, assignment in partitions.items()}
                self._topics[name] = Topic(topic_id, made, read.version, read.unclean)
                self._moving.update(TopicPartition(name, index) for index, one in partitions.items() if is_moving(one))
            else:
                added = {i: Partition(a) for i, a in partitions.items() if i not in known.partitions}
                merged = known.partitions if known.deleting else {**known.partitions, **added}
                self._topics[name] = known._replace(partitions=merged, version=read.version, unclean=read.unclean)
                # An old tool that adds partitions writes the node without the topic id.
                if topic_id == ZERO_UUID and known.topic_id != ZERO_UUID:
                    self._write_topic(name)
        self._give_topic_ids(topics)
        self._settle(TopicPartition(name, index) for name in topics for index in self.cluster.topics[name].partitions)

    def _give_topic_ids(self, names: Iterable[str]) -> None:
        for name in list(names):
            topic = self.cluster.topics[name]
            if topic.topic_id == ZERO_UUID:
                self._topics[name] = topic._replace(topic_id=random_uuid())
                self._write_topic(name)

    def _write_topic(self, name: str, writes: list[tuple[Operation, ...]] | None = None) -> None:
        topic = self.cluster.topics[name]
        written = {
            i: before_all_have_left(p.assignment, self._leaving.get(TopicPartition(name, i), ()))
            for i, p in topic.partitions.items()
        }
        assignment = TopicAssignment(topic.topic_id, written)
        writes = self._writes if writes is None else writes
        writes.append((Set(topic_path(name), encode_topic(assignment), topic.version),))
        self._topics[name] = topic._replace(version=topic.version + 1)

    def _queue_for_deletion(self, names: frozenset[str]) -> None:
        for name in sorted(names):
            topic = self.cluster.topics.get(name)
            if topic is None:
                self._last.append(DropDeletion(name))
            elif self._is_on_its_way(name):
                self._topics[name] = topic._replace(doomed=True)
            elif not topic.deleting:
                replicas = frozenset((i, id_) for i, p in topic.partitions.items() for id_ in p.assignment.replicas)
                topic = self._topics[name] = topic._replace(undeleted=replicas)
                if replicas:
                    self._queued_for_deletion.append(name)
                    self._stop_remaining(name, topic, self.cluster.brokers.keys())
                else:
                    self._remove(name)

    def _stop_undeleted(self, brokers: Iterable[int]) -> None:
        """Of topics that are being deleted: what these brokers have not confirmed."""
        for name, topic in self.cluster.topics.items():
            if topic.undeleted:
                self._stop_remaining(name, topic, brokers)

    def _stop_remaining(self, name: str, topic: Topic, brokers: Iterable[int]) -> None:
        for broker_id in sorted(brokers):
            keys = [TopicPartition(name, index) for index, id_ in sorted(topic.undeleted or ()) if id_ == broker_id]
            if keys:
                self._stops.setdefault((broker_id, True), []).extend(keys)

    def _stopped(self, broker_id: int, deleted: frozenset[TopicPartition]) -> None:
        for name in sorted({key[0] for key in deleted}):
            topic = self.cluster.topics.get(name)
            if topic is None or topic.undeleted is None:
                continue
            confirmed = {(key[1], broker_id) for key in deleted if key[0] == name}
            topic = self._topics[name] = topic._replace(undeleted=topic.undeleted - confirmed)
            if not topic.undeleted:
                self._remove(name)

    def _remove(self, name: str) -> None:
        del self._topics[name]
        failed = frozenset(replica for replica in self.cluster.failed if replica[0] != name)
        self.cluster = self.cluster._replace(failed=failed)
        self._last.append(RemoveTopic(name))

    # -- moves -----------------------------------------------------------------------------------------------------

    def _reassign(self, targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> None:
        moves: list[tuple[TopicPartition, list[int]]] = []
        for key, target in targets.items():
            topic, partition = self.cluster.topics.get(key[0]), self.cluster.partition(key)
            if topic is None or partition is None or topic.deleting or topic.doomed:
                continue
            before = partition.assignment
            if target is None and not is_moving(before):
                continue
            assignment = reassigned(before, target)
            if not can_change(self.cluster, key, partition, assignment):
                continue
            if not is_moving(assignment) and (assignment != before or key not in self._leaving):
                self._dropped[key] = target
            if assignment != before:
                self._leaving.pop(key, None)
                self._assign(key, partition._replace(assignment=assignment))
                moves.append((key, unneeded(before, assignment)))
        # Before all else, so that the next controller goes on with it.
        for name in dict.fromkeys(key[0] for key, _ in moves):
            self._write_topic(name)
        for key, going in moves:
            self._go_on(key, going)

    def _assign(self, key: TopicPartition, partition: Partition) -> None:
        self._put(key, partition)
        (self._moving.add if is_moving(partition.assignment) else self._moving.discard)(key)

    def _go_on(self, key: TopicPartition, going: Collection[int]) -> None:
        """Tell the replicas where the partition goes; `going` are those that only the last plan wanted."""
        partition = self.cluster.partition(key)
        if partition is None:
            return
        if partition.state is None:
            self._settle([key])
        elif going or key not in self._moving or not has_arrived(partition.assignment, partition.state.isr):
            self._move(key, partition, going)

    def _move(self, key: TopicPartition, partition: Partition, removed: Collection[int]) -> bool:
        """Whether the removed could be let go."""
        assert partition.state is not None
        replicas, electable = partition.assignment.replicas, self.cluster.electable(key, partition)
        state = elect_after_move(replicas, removed, partition.state, electable, self.cluster.epoch)
        if state is None:
            return False
        self._change(key, partition, state)
        for id_ in sorted(removed):
            self._stops.setdefault((id_, True), []).append(key)
        return True

    def _arrive(self) -> None:
        """The new replicas are all in sync: the old ones go."""
        for key in sorted(self._moving):
            partition = self.cluster.partition(key)
            if partition is None or partition.state is None:
                continue
            assignment = partition.assignment
            if not has_arrived(assignment, partition.state.isr):
                continue
            target = ReplicaAssignment(target_of(assignment))
            if self._move(key, partition._replace(assignment=target), assignment.removing):
                self._moving.discard(key)
                alive = self.cluster.alive(key, partition)
                self._leaving[key] = frozenset(id_ for id_ in assignment.removing if id_ in alive)
                self._end_move(key)
        for name in [name for name in self._moved if self._topics[name].doomed]:
            if not self._is_on_its_way(name):
                self._topics[name] = self._topics[name]._replace(doomed=False)
                self._queue_for_deletion(frozenset({name}))

    def _left(self, broker_id: int, keys: Iterable[TopicPartition]) -> None:
        """The broker has heard that these partitions have left it, or is gone."""
        for key in sorted(keys):
            self._leaving[key] -= {broker_id}
            self._end_move(key)

    def _end_move(self, key: TopicPartition) -> None:
        """Over it is when the last one that was left has heard of it."""
        if self._leaving[key]:
            return
        del self._leaving[key]
        partition = self.cluster.partition(key)
        if partition is not None:
            self._moved[key[0]] = None
            self._dropped[key] = partition.assignment.replicas

    def _is_on_its_way(self, name: str) -> bool:
        return any(key[0] == name for keys in (self._moving, self._leaving) for key in keys)

    # -- elections -------------------------------------------------------------------------------------------------

    def _pass_over_returned(self) -> None:
        """Brokers that were away while there was no controller count as lost, wherever another one is in sync that was
        not: an unclean end may have cost them records, and where they led they must not go on in the same epoch. Where
        all have been away, the one that has been back for longest is alone in sync, and the others show that they have
        what it has: which of them lost records nobody can see, but not whoever was back before that happened."""
        returned, self.cluster = self.cluster.returned, self.cluster._replace(returned=frozenset())
        for key in sorted({TopicPartition(name, index) for name, index, _ in returned}):
            topic, partition = self._topics[key[0]], self.cluster.partition(key)
            if partition is None or partition.state is None or topic.deleting:
                continue
            stayed = [id_ for id_ in self.cluster.alive(key, partition) if (*key, id_) not in returned]
            electable = [id_ for id_ in self.cluster.electable(key, partition) if id_ in stayed]
            if not any(id_ in partition.state.isr for id_ in stayed):
                back = [id_ for id_ in self.cluster.electable(key, partition) if id_ in partition.state.isr]
                stayed = electable = sorted(back, key=lambda id_: self.cluster.brokers[id_].epoch)[:1]
            if not any(id_ in partition.state.isr for id_ in electable):
                continue
            replicas = partition.assignment.replicas
            state = elect_after_failures(replicas, partition.state, stayed, electable, False, self.cluster.epoch)
            if state is not None:
                self._change(key, partition, state)

    def _settle_all(self) -> None:
        self._settle(key for key, _, _ in list(self.cluster.partitions()))

    def _settle(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            topic, partition = self._topics[key[0]], self.cluster.partition(key)
            if partition is None or topic.deleting or (partition.state is None and partition.version != NO_NODE):
                continue
            electable = self.cluster.electable(key, partition)
            if partition.state is None:
                state = elect_first(partition.assignment.replicas, electable, self.cluster.epoch)
            else:
                state = elect_after_failures(
                    partition.assignment.replicas,
                    partition.state,
                    self.cluster.alive(key, partition),
                    electable,
                    topic.unclean,
                    self.cluster.epoch,
                )
            if state is not None:
                self._change(key, partition, state)

    def _elect(
        self,
        keys: Iterable[TopicPartition],
        elect: Callable[[TopicPartition, Partition, PartitionState], PartitionState | None],
    ) -> None:
        for key in keys:
            partition = self.cluster.partition(key)
            if partition is None or partition.state is None or self.cluster.topics[key[0]].deleting:
                continue
            state = elect(key, partition, partition.state)
            if state is not None:
                self._change(key, partition, state)

    def _preferred(self, key: TopicPartition, partition: Partition, state: PartitionState) -> PartitionState | None:
        electable = self.cluster.electable(key, partition)
        return elect_preferred(partition.assignment.replicas, state, electable, self.cluster.epoch)

    def _unclean(self, key: TopicPartition, partition: Partition, state: PartitionState) -> PartitionState | None:
        alive, electable = self.cluster.alive(key, partition), self.cluster.electable(key, partition)
        if state.leader in alive:
            return None
        return elect_after_failures(partition.assignment.replicas, state, alive, electable, True, self.cluster.epoch)

    def _change(self, key: TopicPartition, partition: Partition, state: PartitionState) -> None:
        name, index = key
        if partition.version == NO_NODE:
            parents: tuple[Operation, ...] = (Create(partition_path(name, index)),)
            if not any(other.version != NO_NODE for other in self.cluster.topics[name].partitions.values()):
                parents = (Create(partitions_path(name)), *parents)
            self._writes.append((*parents, Create(state_path(name, index), encode_state(state))))
            self._created.add(key)
        else:
            self._writes.append((Set(state_path(name, index), encode_state(state), partition.version),))
        self._put(key, partition._replace(state=state, version=partition.version + 1))
        self._changed[key] = None

    def _put(self, key: TopicPartition, partition: Partition) -> None:
        name, index = key
        topic = self._topics[name]
        if name not in self._copied:
            self._copied.add(name)
            topic = self._topics[name] = topic._replace(partitions=dict(topic.partitions))
        topic.partitions[index] = partition

    # -- saying it -------------------------------------------------------------------------------------------------

    def actions(self) -> list[Action]:
        last: list[tuple[Operation, ...]] = []
        for name in self._moved:
            self._write_topic(name, last)
        cluster, brokers = self.cluster, sorted(self.cluster.brokers)
        actions: list[Action] = [Write(tuple(self._writes))] if self._writes else []
        if self._brokers_changed:
            actions.extend(Send(id_, update_metadata(cluster, id_, [])) for id_ in brokers)
        everything: list[TopicPartition] = []
        if self._fresh or self._asked:
            everything = [key for key, topic, _ in cluster.partitions() if not topic.deleting]
        told: KnownStates = {}
        for id_ in brokers:
            keys = everything if id_ in self._fresh or id_ in self._asked else self._changed
            request = leader_and_isr(cluster, id_, keys, self._created, self._listener, told)
            if request is not None:
                actions.append(Send(id_, request))
        deleted = [
            (name, self._topics[name].topic_id, sorted(self._topics[name].partitions))
            for name in self._queued_for_deletion
        ]
        # To all who know the rest the same, and so to all who know nothing yet.
        news = metadata_of(cluster, {**self._changed, **self._news}, deleted)
        whole = metadata_of(cluster, everything, deleted) if self._fresh else []
        for id_ in brokers:
            topics = whole if id_ in self._fresh else news
            if topics:
                actions.append(Send(id_, update_metadata(cluster, id_, topics)))
        for (id_, delete), stopped in sorted(self._stops.items()):
            stop = stop_replicas(cluster, id_, stopped, delete) if id_ in cluster.brokers else None
            if stop is not None:
                actions.append(Send(id_, stop))
        if last:
            actions.append(WriteLast(tuple(last)))
        if self._dropped:
            actions.append(DropReassignments(self._dropped))
        return actions + self._last
