"""Moves of partitions: assignments during a move, refusals, and the two ways to request one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gregor.config.listeners import Listener
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import StopReplicaRequest
from gregor.protocol.turns import run_all
from gregor.replication.controller.context import Cluster, LiveBroker, Partition, Topic
from gregor.replication.controller.reassignment import (
    has_arrived,
    origin_of,
    reassigned,
    reassignment_refusal,
    target_of,
)
from gregor.replication.store import nodes
from gregor.replication.store.nodes import BrokerRegistration, PartitionState, ReplicaAssignment
from tests.replication.controller_subject import Subject, running
from tests.replication.fakes import on_loop

# The results of Kafka's ReplicaAssignment.reassignTo for one target after the other.
PLANS = [
    ((1, 2, 3), [((3, 4, 2), "3,4,2,1 +4 -1"), (None, "3,2,1 + -")]),
    ((1, 2, 3), [((4, 5, 6), "4,5,6,1,2,3 +4,5,6 -1,2,3"), ((1, 2, 4), "1,2,4,3 +4 -3")]),
    ((1, 2), [((2, 1), "2,1 + -"), ((1,), "1,2 + -2"), (None, "1,2 + -")]),
    ((1,), [((1, 2, 3), "1,2,3 +2,3 -"), ((1, 3), "1,3 +3 -"), (None, "1 + -")]),
]


def text_of(assignment: ReplicaAssignment) -> str:
    replicas, adding, removing = (",".join(map(str, ids)) for ids in assignment)
    return f"{replicas} +{adding} -{removing}"


@pytest.mark.parametrize(("replicas", "plans"), PLANS)
def test_plans(replicas: tuple[int, ...], plans: list[tuple[tuple[int, ...] | None, str]]) -> None:
    assignment = ReplicaAssignment(replicas)
    for target, text in plans:
        assignment = reassigned(assignment, target)
        assert text_of(assignment) == text
        assert target is None or target_of(assignment) == target
        assert sorted(origin_of(assignment)) == sorted(replicas)


def test_arrival_is_when_all_of_the_target_are_in_sync() -> None:
    assignment = reassigned(ReplicaAssignment((1, 2)), (2, 3))
    assert not has_arrived(assignment, (1, 2))
    assert has_arrived(assignment, (1, 3, 2))


def picture(assignment: ReplicaAssignment, state: PartitionState | None, **topic: object) -> Cluster:
    endpoint = Listener("PLAINTEXT", "h", 1, "PLAINTEXT")
    brokers = {id_: LiveBroker(BrokerRegistration(id_, (endpoint,)), id_) for id_ in (1, 2, 3)}
    known = Topic(bytes(16), {0: Partition(assignment, state, 0)})._replace(**topic)  # type: ignore[arg-type]
    return Cluster(1, 7, brokers, {"t": known})


STILL = ReplicaAssignment((1, 2))
MOVING = reassigned(STILL, (3,))
STATE = PartitionState(1, 0, (1, 2), 7)
ONLY_NEW = PartitionState(3, 4, (3,), 7)


@pytest.mark.parametrize(
    ("cluster", "target", "keep_factor", "code"),
    [
        (picture(STILL, STATE), (2, 3), True, None),
        (picture(STILL, STATE), (3,), False, None),
        (picture(STILL, STATE), (3,), True, ErrorCode.INVALID_REPLICATION_FACTOR),
        (picture(MOVING, STATE), (3, 2), True, None),
        (picture(MOVING, STATE), (3,), True, ErrorCode.INVALID_REPLICATION_FACTOR),
        (picture(STILL, STATE), None, False, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (picture(MOVING, STATE), None, False, None),
        # Only the broker that would be sent away has all of the records.
        (picture(MOVING, ONLY_NEW), None, False, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (picture(MOVING, ONLY_NEW), (1, 2), False, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (picture(MOVING, ONLY_NEW), (1, 3), False, None),
        (picture(STILL, STATE), (), False, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (picture(STILL, STATE), (1, 1), False, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (picture(STILL, STATE), (1, -3), False, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (picture(STILL, STATE), (1, 4), False, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (picture(STILL, STATE, deletion_queued=True), (1,), False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (picture(STILL, STATE, undeleted=frozenset({(0, 1)})), (1,), False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_is_refused(
    cluster: Cluster, target: tuple[int, ...] | None, keep_factor: bool, code: ErrorCode | None
) -> None:
    refusal = reassignment_refusal(cluster, ("t", 0), target, keep_factor=keep_factor)
    assert (None if refusal is None else refusal.code) == code


def test_unknown_partitions_are_refused() -> None:
    for key in ("t", 1), ("u", 0):
        refusal = reassignment_refusal(picture(STILL, STATE), key, (1,))
        assert refusal is not None
        assert refusal.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_old_tools_may_name_brokers_that_are_away() -> None:
    assert reassignment_refusal(picture(STILL, STATE), ("t", 0), (1, 4), any_broker=True) is None


async def assignment(subject: Subject, name: str, index: int = 0) -> ReplicaAssignment:
    found = await subject.store.get(nodes.topic_path(name))
    assert found is not None
    topic = run_all(nodes.decode_topic(name, found[0]))
    assert topic.topic_id == name.encode().ljust(16)
    return topic.partitions[index]


async def catch_up(subject: Subject, name: str, isr: tuple[int, ...]) -> None:
    """The leader adds these to the ISR, as brokers before AlterPartition do it."""
    found = await subject.store.get(nodes.state_path(name, 0))
    assert found is not None
    state = nodes.decode_state(found[0])._replace(isr=isr)
    await subject.store.set(nodes.state_path(name, 0), nodes.encode_state(state))
    await subject.store.create(nodes.ISR_CHANGE_PREFIX, nodes.encode_partition_list([(name, 0)]), sequential=True)
    await subject.settle()


def deleted_on(subject: Subject, broker_id: int) -> list[tuple[str, int]]:
    return [
        (topic.topic_name, state.partition_index)
        for request in subject.brokers.to(broker_id)
        if isinstance(request, StopReplicaRequest)
        for topic in request.topic_states
        for state in topic.partition_states
        if state.delete_partition
    ]


@on_loop
async def test_a_move_by_request(tmp_path: Path) -> None:
    async with running(tmp_path, 2, 3) as subject:
        await subject.create("t", (1, 2))
        targets = {("t", 0): (2, 3), ("t", 7): (1,)}
        results = await subject.loop.reassign(targets)
        assert [None if error is None else error.code for error in results.values()] == [
            None,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await assignment(subject, "t") == ReplicaAssignment((2, 3, 1), (3,), (1,))
        await catch_up(subject, "t", (1, 2, 3))
        assert await assignment(subject, "t") == ReplicaAssignment((2, 3))
        state = await subject.state("t")
        assert (state.leader, state.isr) == (2, (2, 3))
        assert [deleted_on(subject, id_) for id_ in (1, 2, 3)] == [[("t", 0)], [], []]
        assert subject.loop.cluster is not None
        assert subject.loop.cluster.moving == frozenset()


@on_loop
async def test_a_replica_that_cannot_be_deleted_does_not_keep_a_move_from_its_end(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as subject:
        await subject.create("t", (1,))
        await subject.loop.reassign({("t", 0): (2,)})
        subject.brokers.broken.add((1, "t", 0))
        await catch_up(subject, "t", (1, 2))
        assert deleted_on(subject, 1) == [("t", 0)]
        assert await assignment(subject, "t") == ReplicaAssignment((2,))


@on_loop
async def test_a_move_is_not_over_before_the_broker_that_was_left_confirms_it(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as subject:
        await subject.create("t", (2,))
        await subject.loop.reassign({("t", 0): (1,)})
        subject.brokers.unreachable.add(2)
        await catch_up(subject, "t", (2, 1))
        left = ReplicaAssignment((1, 2), (), (2,))
        assert (await subject.state("t")).isr == (1,)
        assert await assignment(subject, "t") == left._replace(adding=(1,))
        assert await subject.loop.reassignments(None) == {("t", 0): left}
        subject.brokers.unreachable.clear()
        await subject.brokers.until(lambda: deleted_on(subject, 2) == [("t", 0)])
        await subject.settle()
        assert await assignment(subject, "t") == ReplicaAssignment((1,))
        assert await subject.loop.reassignments(None) == {}


@on_loop
async def test_a_move_by_the_node_of_old_tools(tmp_path: Path) -> None:
    async with running(tmp_path, 2, 3) as subject:
        await subject.create("t", (1,))
        await subject.create("u", (1,))
        wanted = {("t", 0): (2,), ("u", 0): (3,), ("absent", 0): (1,), ("t", 9): (1,)}
        await subject.store.create(nodes.REASSIGNMENT, nodes.encode_reassignments(wanted))
        await subject.settle()
        # An impossible request is removed at once, a move when it is complete.
        found = await subject.store.get(nodes.REASSIGNMENT)
        assert found is not None
        assert nodes.decode_reassignments(found[0]) == {("t", 0): (2,), ("u", 0): (3,)}
        await catch_up(subject, "t", (1, 2))
        found = await subject.store.get(nodes.REASSIGNMENT)
        assert found is not None
        assert nodes.decode_reassignments(found[0]) == {("u", 0): (3,)}
        await catch_up(subject, "u", (1, 3))
        assert await subject.store.exists(nodes.REASSIGNMENT) is None
        assert (await assignment(subject, "t"), await assignment(subject, "u")) == (
            ReplicaAssignment((2,)),
            ReplicaAssignment((3,)),
        )
        # The next request is read as well; one that cannot be decoded is removed.
        await subject.store.create(nodes.REASSIGNMENT, b"{}")
        await subject.settle()
        assert await subject.store.exists(nodes.REASSIGNMENT) is None
        await subject.store.create(nodes.REASSIGNMENT, nodes.encode_reassignments({("t", 0): (2, 1)}))
        await subject.settle()
        assert await assignment(subject, "t") == ReplicaAssignment((2, 1), (1,))


@on_loop
async def test_a_request_replaces_the_node(tmp_path: Path) -> None:
    async with running(tmp_path, 2, 3) as subject:
        await subject.create("t", (1,))
        await subject.store.create(nodes.REASSIGNMENT, nodes.encode_reassignments({("t", 0): (2,)}))
        await subject.settle()
        assert await subject.loop.reassign({("t", 0): None}) == {("t", 0): None}
        assert await subject.store.exists(nodes.REASSIGNMENT) is None
        assert await assignment(subject, "t") == ReplicaAssignment((1,))
        assert deleted_on(subject, 2) == [("t", 0)]


@on_loop
async def test_the_next_controller_continues_a_move(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as subject:
        await subject.create("t", (1,))
        await subject.loop.reassign({("t", 0): (2,)})
        epoch = (await subject.state("t")).leader_epoch
        # As if elected with both, the node and the replicas' states, from an earlier one.
        await subject.store.delete(nodes.CONTROLLER)
        await subject.settle()
        assert (await subject.state("t")).leader_epoch == epoch + 1
        await catch_up(subject, "t", (1, 2))
        assert await assignment(subject, "t") == ReplicaAssignment((2,))


@on_loop
async def test_a_tool_that_adds_partitions_does_not_stop_a_move(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as subject:
        await subject.create("t", (1,))
        await subject.loop.reassign({("t", 0): (2,)})
        await subject.store.set(nodes.topic_path("t"), b'{"version":1,"partitions":{"0":[2,1],"1":[2]}}')
        await subject.settle()
        assert await assignment(subject, "t") == ReplicaAssignment((2, 1), (2,), (1,))
        assert await assignment(subject, "t", 1) == ReplicaAssignment((2,))
