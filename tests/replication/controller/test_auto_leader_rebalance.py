"""Leadership that goes back by itself: from which share on, and what stays where it is."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest

from gregor.broker.jobs.turns import LoopGate
from gregor.config.listeners import Listener
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import run_all
from gregor.replication.controller.auto_leader_rebalance import AutoLeaderRebalance, imbalanced_partitions
from gregor.replication.controller.context import Cluster, LiveBroker, Partition, Topic
from gregor.replication.store import nodes
from gregor.replication.store.nodes import BrokerRegistration, PartitionState, ReplicaAssignment
from tests.replication.controller_subject import running
from tests.replication.fakes import on_loop


def cluster_of(*partitions: str, brokers: Collection[int] = (1, 2, 3)) -> Cluster:
    """Of partitions as "replicas leader isr", "1,2 2 1,2"; without a leader: no state yet."""
    endpoint = Listener("PLAINTEXT", "h", 1, "PLAINTEXT")
    live = {id_: LiveBroker(BrokerRegistration(id_, (endpoint,)), id_) for id_ in brokers}
    made = {}
    for index, text in enumerate(partitions):
        replicas, *state = text.split()
        assignment = ReplicaAssignment(tuple(map(int, replicas.split(","))))
        made[index] = Partition(assignment)
        if state:
            isr = tuple(map(int, state[1].split(",")))
            made[index] = Partition(assignment, PartitionState(int(state[0]), 0, isr, 7), 0)
    return Cluster(1, 7, live, {"t": Topic(bytes(16), made)})


def misled_of(cluster: Cluster, percentage: int = 10) -> set[TopicPartition]:
    return run_all(imbalanced_partitions(cluster, percentage))


@pytest.mark.parametrize(
    ("partitions", "given_back"),
    [
        (["1,2 1 1,2", "2,1 2 2,1"], set()),
        (["1,2 2 1,2", "2,1 2 2,1"], {0}),
        (["1,2"], set()),
        # Broker 1 lacks one of ten, which is no more than 10 %; broker 2 two of ten.
        (["1,2 2 1,2", *["1,2 1 1,2"] * 9], set()),
        (["2,1 1 1,2", "2,1 1 1,2", *["2,1 2 1,2"] * 8], {0, 1}),
        # Partitions that cannot be moved back count, but stay: not in sync, not alive.
        (["1,2 2 2", "1,2 2 1,2"], {1}),
        (["4,2 2 4,2"], set()),
        (["1,2 -1 1,2", "1,2 1 1,2"], {0}),
    ],
)
def test_which_are_given_back(partitions: list[str], given_back: set[int]) -> None:
    assert misled_of(cluster_of(*partitions)) == {("t", index) for index in given_back}


def test_topics_that_go_are_left_alone() -> None:
    cluster = cluster_of("1,2 2 1,2")
    for change in {"deletion_queued": True}, {"undeleted": frozenset({(0, 1)})}:
        topics = {"t": cluster.topics["t"]._replace(**change)}  # type: ignore[arg-type]
        assert misled_of(cluster._replace(topics=topics)) == set()


def test_a_thousand_partitions_are_checked_in_steps() -> None:
    steps = imbalanced_partitions(cluster_of(*["1,2 2 1,2"] * 2000), 10)
    assert sum(1 for _ in steps) >= 6


@on_loop
async def test_a_broker_that_came_back_leads_again(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as subject:
        await subject.create("t", (2, 1))
        await subject.store.delete(nodes.broker_path(2))
        await subject.settle()
        await subject.join(2)
        await subject.settle()
        balance = AutoLeaderRebalance(subject.loop, 10, 300, LoopGate())
        await balance.check()
        assert (await subject.state("t")).leader == 1, "not in sync yet"
        state = (await subject.state("t"))._replace(isr=(1, 2))
        await subject.store.set(nodes.state_path("t", 0), nodes.encode_state(state))
        await subject.store.create(nodes.ISR_CHANGE_PREFIX, nodes.encode_partition_list([("t", 0)]), sequential=True)
        await subject.settle()
        await balance.check()
        assert (await subject.state("t")).leader == 2


@on_loop
async def test_it_checks_after_every_election_and_then_at_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    enough = asyncio.Event()

    class Controller:
        cluster: Cluster | None = None

        async def elect(self, keys: Collection[TopicPartition], unclean: bool) -> None:
            assert not unclean
            looks.append(len(keys))
            if len(looks) == 3:
                enough.set()

    monkeypatch.setattr("gregor.replication.controller.auto_leader_rebalance.FIRST_CHECK_S", 0.001)
    controller = Controller()
    task = asyncio.create_task(AutoLeaderRebalance(controller, 10, 0.002, LoopGate()).run())
    try:
        await asyncio.sleep(0.01)
        assert not looks
        controller.cluster = cluster_of("1,2 2 1,2")
        await asyncio.wait_for(enough.wait(), 30)
        assert set(looks) == {1}
    finally:
        task.cancel()
