"""A controller played by commands, with the nodes it writes; the commands are those of test_controller_scenarios."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from gregor.config.listeners import Listener
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import run_all
from gregor.replication.controller.context import Cluster
from gregor.replication.controller.decision.decide import decide
from gregor.replication.controller.events import (
    Action,
    BrokersChanged,
    DropDeletion,
    DropReassignments,
    Elected,
    Event,
    IsrChanged,
    PreferredElection,
    Reassigned,
    RemoveTopic,
    ReplicasFailed,
    ReplicasStopped,
    Send,
    ShutdownAnnounced,
    TopicRead,
    TopicsChanged,
    TopicsQueuedForDeletion,
    UncleanChanged,
    Write,
    WriteLast,
)
from gregor.replication.controller.reassignment import is_moving
from gregor.replication.store import nodes
from gregor.replication.store.metadata_store import Create, Operation, Set
from gregor.replication.store.node_tree import NodeTree
from gregor.replication.store.nodes import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment


class Phase(Enum):
    """States of a partition, as Kafka's PartitionStateMachine names them. They follow from its nodes:

    | phase        | means                                           | may follow             |
    |--------------|-------------------------------------------------|------------------------|
    | NON_EXISTENT | not assigned, or its topic is being deleted     | any                    |
    | NEW          | assigned, never had a leader: no state node     | NON_EXISTENT           |
    | ONLINE       | a live broker leads it                          | NEW, ONLINE, OFFLINE   |
    | OFFLINE      | it had a leader; that one is gone, there is none | ONLINE                 |
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


def phase_of(cluster: Cluster, key: TopicPartition) -> Phase:
    topic = cluster.topics.get(key.topic)
    partition = cluster.partition(key)
    if topic is None or partition is None or topic.deleting:
        return Phase.NON_EXISTENT
    if partition.state is None:
        return Phase.NEW
    return Phase.ONLINE if partition.state.leader in cluster.alive(key, partition) else Phase.OFFLINE


def key_of(text: str) -> TopicPartition:
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))


def joined(ids: object) -> str:
    assert isinstance(ids, (list, tuple))
    return ",".join(map(str, ids)) or "none"


class Scenario:
    """A controller with epoch 7, and the nodes it writes."""

    def __init__(self) -> None:
        self.cluster = Cluster(1, 7)
        self.tree = NodeTree()
        self.do([Create("/brokers"), Create("/brokers/topics")])

    def do(self, operations: list[Operation]) -> None:
        self.tree.apply(operations, 1)

    def run(self, command: str) -> list[str]:
        before = {key: phase_of(self.cluster, key) for key, _, _ in self.cluster.partitions()}
        event = self.event(command)
        old = self.cluster
        kept = repr(old)
        self.cluster, actions = decide(old, event)
        assert repr(old) == kept, "a decision must leave the picture it was made from alone"
        for key, _, _ in self.cluster.partitions():
            phase, previous = phase_of(self.cluster, key), before.get(key, Phase.NEW)
            if phase is not previous and not command.startswith("elected"):
                assert previous in LEGAL_PREDECESSORS[phase], (key, previous, phase)
        return [line for action in actions for line in self.lines(action)]

    def event(self, command: str) -> Event:
        match command.split():
            case ["brokers", *ids]:
                lives = {int(text.rstrip("+")): text.count("+") for text in ids}
                endpoint = Listener("PLAINTEXT", "h", 1, "PLAINTEXT")
                return BrokersChanged(
                    {id_: (BrokerRegistration(id_, (endpoint,)), 100 + life) for id_, life in lives.items()}
                )
            case ["topic", name, *words]:
                unclean = words[:1] == ["unclean"]
                return TopicsChanged({name: self.topic(name, words[unclean:], unclean)})
            case ["elected", *doomed]:
                self.read_again()
                return Elected(frozenset(doomed[1:]))
            case ["doom", *names]:
                return TopicsQueuedForDeletion(frozenset(names))
            case ["stopped", broker_id, *keys]:
                return ReplicasStopped(int(broker_id), frozenset(map(key_of, keys)))
            case ["kept", broker_id, *keys]:
                return ReplicasStopped(int(broker_id), frozenset(), frozenset(map(key_of, keys)))
            case ["failed", broker_id, *keys]:
                return ReplicasFailed(int(broker_id), frozenset(map(key_of, keys)))
            case ["isr", key, ids]:
                return IsrChanged({key_of(key): self.isr_written(key_of(key), tuple(map(int, ids.split(","))))})
            case ["unclean", name, switch]:
                return UncleanChanged({name: switch == "on"})
            case ["preferred", *keys]:
                return PreferredElection(frozenset(map(key_of, keys)))
            case ["shutdown", broker_id]:
                return ShutdownAnnounced(int(broker_id))
            case ["move", *moves]:
                pairs = [text.split("=") for text in moves]
                return Reassigned(
                    {key_of(key): tuple(map(int, to.split(","))) if to != "back" else None for key, to in pairs}
                )
            case ["caught", key]:
                partition = self.cluster.partition(key_of(key))
                if partition is None or partition.state is None or partition.state.leader == -1:
                    return IsrChanged({})
                isr = tuple(self.cluster.alive(key_of(key), partition))
                return IsrChanged({key_of(key): self.isr_written(key_of(key), isr)})
            case ["gone", name]:
                return TopicsChanged({}, frozenset({name}))
        raise AssertionError(f"no such command: {command}")

    def read_again(self) -> None:
        """The picture as the nodes have it, which the next controller begins with."""
        topics, moving = {}, set()
        for name, topic in self.cluster.topics.items():
            found = self.tree.get(nodes.topic_path(name), None)
            assert found is not None
            written = run_all(nodes.decode_topic(name, found[0])).partitions
            partitions = {i: one._replace(assignment=written[i]) for i, one in topic.partitions.items()}
            topics[name] = topic._replace(partitions=partitions, undeleted=None)
            moving |= {(name, index) for index, one in written.items() if is_moving(one)}
        self.cluster = self.cluster._replace(topics=topics, moving=frozenset(moving), leaving={})

    def topic(self, name: str, replicas: list[str], unclean: bool) -> TopicRead:
        topic_id = name.encode().ljust(16, b"\1")
        partitions = {i: ReplicaAssignment(tuple(map(int, text.split(",")))) for i, text in enumerate(replicas)}
        path = nodes.topic_path(name)
        known = self.tree.get(path, None)
        if known is not None:  # partitions that exist stay as they are written there
            partitions |= run_all(nodes.decode_topic(name, known[0])).partitions
        data = nodes.encode_topic(TopicAssignment(topic_id, partitions))
        self.do([Create(path, data) if known is None else Set(path, data)])
        found = self.tree.get(path, None)
        assert found is not None
        return TopicRead(run_all(nodes.decode_topic(name, found[0])), found[1].version, unclean)

    def isr_written(self, key: TopicPartition, isr: tuple[int, ...]) -> tuple[PartitionState, int]:
        found = self.tree.get(nodes.state_path(*key), None)
        assert found is not None
        state = nodes.decode_state(found[0])._replace(isr=isr)
        self.do([Set(nodes.state_path(*key), nodes.encode_state(state), found[1].version)])
        return state, found[1].version + 1

    def lines(self, action: Action) -> Iterator[str]:
        match action:
            case Write(parts, _):
                for part in parts:
                    self.do(list(part))
                    yield f"write {self.written(part[-1])}"
            case WriteLast(parts):
                for part in parts:
                    self.do(list(part))
                    yield f"at last write {self.written(part[-1])}"
            case DropReassignments(targets):
                for key, target in targets.items():
                    yield f"done {key[0]}-{key[1]} to {joined(target) if target else 'anywhere'}"
            case Send(broker_id, LeaderAndIsrRequest() as request):
                for topic in request.topic_states:
                    for p in topic.partition_states:
                        role = "lead" if p.leader == broker_id else f"follow {p.leader} in"
                        marks = (" new" if p.is_new else "") + (" recovering" if p.leader_recovery_state else "")
                        where = f"{topic.topic_name}-{p.partition_index}"
                        yield f"tell {broker_id}: {role} {where} epoch {p.leader_epoch} isr {joined(p.isr)}{marks}"
            case Send(broker_id, UpdateMetadataRequest() as request):
                if not request.topic_states:
                    yield f"news to {broker_id}: brokers {joined([broker.id for broker in request.live_brokers])}"
                for told in request.topic_states:
                    for m in told.partition_states:
                        led = {-1: "no leader", -2: "is deleted"}.get(m.leader, f"leader {m.leader}")
                        offline = f" offline {joined(m.offline_replicas)}" if m.offline_replicas else ""
                        isr = f" isr {joined(m.isr)}" if m.leader != -2 else ""
                        yield f"news to {broker_id}: {told.topic_name}-{m.partition_index} {led}{isr}{offline}"
            case Send(broker_id, StopReplicaRequest() as request):
                for stopped in request.topic_states:
                    for s in stopped.partition_states:
                        verb = "delete" if s.delete_partition else "stop"
                        yield f"tell {broker_id}: {verb} {stopped.topic_name}-{s.partition_index}"
            case RemoveTopic(name):
                yield f"remove {name}"
            case DropDeletion(name):
                yield f"no such topic {name}"

    @staticmethod
    def written(operation: Operation) -> str:
        assert isinstance(operation, (Create, Set))
        words = operation.path.split("/")
        if words[-1] != "state":
            written = run_all(nodes.decode_topic(words[-1], operation.data))
            assert written.topic_id != ZERO_UUID
            plans = [
                joined(one.replicas)
                + "".join(f"+{id_}" for id_ in one.adding)
                + "".join(f"-{id_}" for id_ in one.removing)
                for one in written.partitions.values()
            ]
            return f"topic {words[-1]}: {' '.join(plans)}"
        state = nodes.decode_state(operation.data)
        leader = "no leader" if state.leader == -1 else f"leader {state.leader}"
        assert state.controller_epoch == 7
        return f"{words[3]}-{words[5]}: {leader} epoch {state.leader_epoch} isr {joined(state.isr)}"
