"""The controller's decisions under any course of events: what must hold after each."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.config.listeners import Listener
from gregor.protocol.turns import run_all
from gregor.replication.controller.context import Cluster
from gregor.replication.controller.decision.decide import decide
from gregor.replication.controller.events import BrokersChanged, Send, Write
from gregor.replication.controller.reassignment import is_moving, target_of
from gregor.replication.controller.requests import SECURITY_PROTOCOL_IDS
from gregor.replication.store import nodes
from gregor.replication.store.nodes import BrokerRegistration, PartitionState
from tests.replication.scenario import Scenario

TOPICS = {"t": "1,2,3 2,3", "u": "unclean 3,1 1"}
KEYS = ["t-0", "t-1", "u-0", "u-1"]

COMMANDS = st.one_of(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), max_size=3, unique_by=lambda life: life[0]).map(
        lambda lives: "brokers " + " ".join(f"{id_}{'+' * life}" for id_, life in lives)
    ),
    st.sampled_from([f"topic {name} {replicas}" for name, replicas in TOPICS.items()]),
    st.tuples(st.integers(1, 3), st.sampled_from(KEYS)).map(lambda pair: f"failed {pair[0]} {pair[1]}"),
    st.integers(1, 3).map(lambda id_: f"shutdown {id_}"),
    st.just("preferred t-0 t-1 u-0"),
    st.sampled_from([f"move {key}={to}" for key in KEYS for to in ("1", "2,3", "3,1", "1,2,3", "back")]),
    st.sampled_from(KEYS).map(lambda key: f"caught {key}"),
    st.sampled_from([f"{said} {id_} {key}" for said in ("stopped", "kept") for id_ in (1, 2, 3) for key in KEYS]),
    st.sampled_from(
        ["unclean t on", "unclean t off", "doom u", "elected", "stopped 1 u-0 u-1", "stopped 3 u-0", "doom t"]
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(COMMANDS, max_size=12))
def test_invariants_of_every_course(commands: list[str]) -> None:
    scenario = Scenario()
    for command in commands:
        before = {key: (topic, p.state) for key, topic, p in scenario.cluster.partitions()}
        scenario.run(command)  # does the writes on a tree: a refused one would raise
        cluster = scenario.cluster
        for key, topic, partition in cluster.partitions():
            state = partition.state
            if state is None:
                continue
            # The context equals the nodes, versions included.
            found = scenario.tree.get(nodes.state_path(*key), None)
            assert found is not None
            assert (nodes.decode_state(found[0]), found[1].version) == (state, partition.version)
            assert state.isr and set(state.isr) <= set(partition.assignment.replicas)
            if topic.deleting:
                continue
            assert state.leader == -1 or (state.leader in state.isr and state.leader in cluster.alive(key, partition))
            check_change(before.get(key), state, topic.unclean, caught=command.startswith("caught"))
        check_moves(scenario)


def check_moves(scenario: Scenario) -> None:
    cluster = scenario.cluster
    assert cluster.moving == {key for key, _, partition in cluster.partitions() if is_moving(partition.assignment)}
    for name, topic in cluster.topics.items():
        found = scenario.tree.get(nodes.topic_path(name), None)
        assert found is not None
        assert found[1].version == topic.version
        if not topic.deleting:
            written = run_all(nodes.decode_topic(name, found[0])).partitions
            for index, partition in topic.partitions.items():
                if left := cluster.leaving.get((name, index)):
                    assert left <= cluster.brokers.keys(), "nobody will confirm"
                    assert left <= set(written[index].removing), "the next controller would not tell them"
                    assert target_of(written[index]) == partition.assignment.replicas
                else:
                    assert written[index] == partition.assignment
            assert written.keys() == topic.partitions.keys()
            on_their_way = cluster.moving | cluster.leaving.keys()
            assert topic.deletion_queued <= any(key[0] == name for key in on_their_way), (
                "a deletion that does not begin"
            )
    assert all(cluster.partition(key) is not None for key in cluster.leaving)


def check_change(before: Any, state: PartitionState, unclean: bool, *, caught: bool) -> None:
    if before is None or before[1] is None or before[1] == state:
        return
    if caught and state.leader_epoch == before[1].leader_epoch:
        assert state._replace(isr=()) == before[1]._replace(isr=())
        return
    assert state.leader_epoch > before[1].leader_epoch, "brokers obey newer epochs only"
    if caught:
        return
    if not unclean and not before[0].unclean and state.leader != -1:
        assert state.leader in before[1].isr, "only the in-sync have all that was committed"
        assert set(state.isr) <= set(before[1].isr)


def test_endpoints_reach_brokers_as_kafka_numbers_them() -> None:
    endpoints = (Listener("IN", "h", 1, "PLAINTEXT"), Listener("OUT", "::1", 2, "SASL_SSL"))
    event = BrokersChanged({1: (BrokerRegistration(1, endpoints, rack="r"), 77)})
    _, actions = decide(Cluster(1, 3), event)
    (send,) = actions
    assert isinstance(send, Send)
    request: Any = send.request
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (1, 3, 77)
    (broker,) = request.live_brokers
    assert (broker.id, broker.rack) == (1, "r")
    assert [(e.listener, e.host, e.port, e.security_protocol) for e in broker.endpoints] == [
        ("IN", "h", 1, 0),
        ("OUT", "::1", 2, 3),
    ]
    assert SECURITY_PROTOCOL_IDS["SASL_PLAINTEXT"] == 2


def test_all_brokers_are_notified_of_a_broker_with_another_address() -> None:
    scenario = Scenario()
    scenario.run("brokers 1 2")
    moved = {
        id_: (broker.registration, broker.epoch) if id_ == 1 else (BrokerRegistration(2, ()), broker.epoch)
        for id_, broker in scenario.cluster.brokers.items()
    }
    cluster, actions = decide(scenario.cluster, BrokersChanged(moved))
    assert [(type(action), getattr(action, "broker_id", None)) for action in actions] == [(Send, 1), (Send, 2)]
    assert cluster.brokers[2].registration.endpoints == ()


def test_fifty_partitions_are_one_write_and_two_requests() -> None:
    scenario = Scenario()
    scenario.run("brokers 1")
    event = scenario.event("topic t " + " ".join(["1"] * 50))
    _, actions = decide(scenario.cluster, event)
    assert [type(action) for action in actions] == [Write, Send, Send]
    write = actions[0]
    assert isinstance(write, Write)
    assert len([operation for part in write.parts for operation in part]) == 1 + 2 * 50
    assert all(len(topic.partition_states) == 50 for a in actions[1:] for topic in a.request.topic_states)  # type: ignore[union-attr]
