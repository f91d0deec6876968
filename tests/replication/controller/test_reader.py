"""The context that the controller makes of the nodes when it reads everything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gregor.broker.jobs.turns import LoopGate
from gregor.config.listeners import Listener
from gregor.replication.controller.context import Cluster, LiveBroker, Partition, Topic
from gregor.replication.controller.decision.decide import decide
from gregor.replication.controller.events import Elected
from gregor.replication.controller.reader import ControllerReader
from gregor.replication.store import nodes
from gregor.replication.store.metadata_store import Stat
from gregor.replication.store.nodes import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment
from tests.replication.fakes import on_loop

ASSIGNMENT = ReplicaAssignment((1, 2, 3))
STATE = PartitionState(1, 4, (1, 2, 3), 6)


class Nodes:
    """A store that is only read. Each node has a version 7 and was made and set by the writes given."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, Stat]] = {}

    def put(self, path: str, data: bytes, czxid: int, mzxid: int) -> None:
        self.nodes[path] = data, Stat(7, czxid, 0, mzxid)

    async def get_many(self, paths: Sequence[str], watch: Any = None) -> list[tuple[bytes, Stat] | None]:
        return [self.nodes.get(path) for path in paths]

    async def children(self, path: str, watch: Any = None) -> list[str]:
        return [found.removeprefix(path + "/") for found in self.nodes if found.rpartition("/")[0] == path]


class Configs:
    async def ensure(self, topics: Iterable[tuple[str, bytes]]) -> None:
        return

    def log_config(self, topic: str) -> Any:
        return type("Config", (), {"unclean_leader_election_enable": False})


def registration(broker_id: int) -> BrokerRegistration:
    return BrokerRegistration(broker_id, (Listener("PLAINTEXT", "h", 1, "PLAINTEXT"),))


async def read(written: int, registered: dict[int, int]) -> Cluster:
    """With the state written by that write, and brokers registered by those."""
    store: Any = Nodes()
    for broker_id, czxid in registered.items():
        store.put(nodes.broker_path(broker_id), nodes.encode_broker(registration(broker_id)), czxid, czxid)
    topic = TopicAssignment(b"i" * 16, {0: ASSIGNMENT})
    store.put(nodes.topic_path("t"), nodes.encode_topic(topic), 2, 2)
    store.put(nodes.state_path("t", 0), nodes.encode_state(STATE), 3, written)
    configs: Any = Configs()
    return await ControllerReader(store, configs, lambda path: None, LoopGate()).cluster(Cluster(9, 8))


@on_loop
async def test_brokers_younger_than_the_state_that_counts_on_them_have_returned() -> None:
    cluster = await read(50, {1: 60, 2: 10, 3: 49})
    assert cluster.returned == {("t", 0, 1)}
    assert cluster.topics["t"].partitions[0] == Partition(ASSIGNMENT, STATE, 7)
    assert (await read(50, {1: 60, 2: 10})).returned == {("t", 0, 1)}
    assert (await read(50, {2: 49})).returned == frozenset()
    # A store that does not number its writes in this way has one broker, which is not replaced.
    assert (await read(0, {1: 60, 2: 10, 3: 49})).returned == frozenset()


def elected(returned: set[int], alive: Iterable[int] = (1, 2, 3), state: PartitionState = STATE) -> PartitionState:
    """`alive` in the order in which they registered."""
    brokers = {broker_id: LiveBroker(registration(broker_id), epoch) for epoch, broker_id in enumerate(alive)}
    topics = {"t": Topic(b"i" * 16, {0: Partition(ASSIGNMENT, state, 7)})}
    before = Cluster(9, 8, brokers, topics, returned=frozenset(("t", 0, broker_id) for broker_id in returned))
    cluster, _ = decide(before, Elected())
    assert cluster.returned == frozenset()
    after = cluster.topics["t"].partitions[0].state
    assert after is not None
    return after


def test_a_broker_that_was_away_while_there_was_no_controller_counts_as_lost() -> None:
    assert elected(set()) == STATE
    assert elected({1}) == PartitionState(2, 5, (2, 3), 8)
    assert elected({2}) == PartitionState(1, 5, (1, 3), 8)
    assert elected({1, 3}) == PartitionState(2, 5, (2,), 8)


def test_all_of_them_may_have_been_away() -> None:
    """Which of them lost records is not known: least likely the one that was back first."""
    assert elected({1, 2, 3}, alive=(1, 3, 2)) == PartitionState(1, 5, (1,), 8)
    assert elected({1, 2, 3}, alive=(3, 1, 2)) == PartitionState(3, 5, (3,), 8)
    assert elected({1, 2}, alive=(2, 1)) == PartitionState(2, 5, (2,), 8)
    assert elected({1}, alive=(1, 2, 3), state=STATE._replace(isr=(1,))) == STATE._replace(isr=(1,))
    # A broker in sync by that state, not distinguishable from one that stayed, leaves with the next decision.
    assert elected({1}, alive=(1,)) == PartitionState(1, 5, (1,), 8)
