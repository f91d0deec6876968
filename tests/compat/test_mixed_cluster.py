"""One Apache Kafka 3.9.1 broker and two gregor brokers on one ZooKeeper, each kind in turn as controller, with load."""

from __future__ import annotations

import pathlib
import signal
from typing import Any

import pytest
from confluent_kafka import KafkaException

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import AlterPartitionReassignmentsRequest, ApiMessage, ElectLeadersRequest
from tests.compat.cluster_load import (
    WAIT_S,
    NumberedLoad,
    Reader,
    admin,
    check_replicas,
    commit,
    committed,
    create,
    verify_replicas,
    wait_in_sync,
)
from tests.compat.records import until
from tests.support.mixed_cluster import GREGOR, KAFKA, MixedCluster
from tests.support.topic_settings import alteration, description
from tests.support.wire import ask

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

LOAD = "load"
ASSIGNMENT = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
"""The assignment of the topic under load: each broker leads one partition."""
SETTINGS = {"zookeeper.session.timeout.ms": "10000", "replica.lag.time.max.ms": "3000"}


def delete(cluster: MixedCluster, topic: str, absent: int) -> None:
    """While one of its brokers is away; waits until it is gone from all disks once that is back."""
    assert cluster.brokers[absent].stop() == 0
    client = admin(cluster)
    try:
        client.delete_topics([topic], operation_timeout=3)[topic].result(WAIT_S)
    except KafkaException as failure:
        # The reassignment stays under way while not all replicas are there.
        assert failure.args[0].code() == ErrorCode.REQUEST_TIMED_OUT, failure
    assert absent in holders(cluster, topic)
    cluster.start(absent)
    until(lambda: not holders(cluster, topic), f"{topic} is gone from all disks", WAIT_S)
    for node in (f"/brokers/topics/{topic}", f"/admin/delete_topics/{topic}"):
        until(lambda node=node: cluster.store.exists(node) is None, f"{node} is gone", WAIT_S)  # type: ignore[misc]
    wait_in_sync(cluster, LOAD, 3)


def ask_controller(cluster: MixedCluster, request: ApiMessage, version: int) -> Any:
    """Return the answer of the broker that is the controller by then."""
    answers: list[Any] = []

    def asked() -> bool:
        controller = cluster.controller()
        if controller is None:
            return False
        answers.append(ask(cluster.brokers[controller].port, request, version, WAIT_S))
        return bool(answers[-1].error_code != ErrorCode.NOT_CONTROLLER)

    until(asked, f"an answer of the controller to {type(request).__name__}", WAIT_S)
    return answers[-1]


def wait_for_leaders(cluster: MixedCluster, topic: str, leaders: list[int]) -> None:
    def led() -> bool:
        found = [cluster.state(topic, number) for number in range(len(leaders))]
        return [state["leader"] for state in found] == leaders

    until(led, f"leaders {leaders} of {topic}", WAIT_S)


def elect_preferred(cluster: MixedCluster, topic: str, leaders: list[int]) -> None:
    parts = ElectLeadersRequest.TopicPartitions(topic=topic, partitions=list(range(len(leaders))))
    request = ElectLeadersRequest(election_type=0, topic_partitions=[parts], timeout_ms=30_000)
    assert ask_controller(cluster, request, 2).error_code == ErrorCode.NONE
    wait_for_leaders(cluster, topic, leaders)


def reassign(cluster: MixedCluster, topic: str, replicas: list[int], successor: int | None = None) -> None:
    """Partition 0, which a successor of the controller brings to its end; waits until it is there, in sync, and nowhere
    else."""
    part = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=replicas)
    asked = [AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[part])]
    answer = ask_controller(cluster, AlterPartitionReassignmentsRequest(timeout_ms=30_000, topics=asked), 0)
    assert answer.error_code == answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    if successor is not None:
        cluster.force_controller(successor)

    def moved() -> bool:
        node, state = cluster.node(f"/brokers/topics/{topic}"), cluster.state(topic, 0)
        return (
            node["partitions"]["0"] == replicas
            and not node.get("adding_replicas")
            and not node.get("removing_replicas")
            and sorted(state["isr"]) == sorted(replicas)
            and holders(cluster, topic) == set(replicas)
        )

    until(moved, f"{topic}-0 on {replicas}", WAIT_S)


def holders(cluster: MixedCluster, topic: str) -> set[int]:
    """The brokers with a folder of its partition 0."""
    return {
        broker_id
        for broker_id, broker in enumerate(cluster.brokers)
        if (broker.folder / "data" / f"{topic}-0").is_dir()
    }


def retention_of(cluster: MixedCluster, topic: str, broker_id: int) -> str | None:
    port = cluster.brokers[broker_id].port
    [found] = ask(port, description([topic], "retention.ms"), 1, WAIT_S).results
    value: str | None = found.configs[0].value if found.configs else None
    return value


def alter_retention(cluster: MixedCluster, topic: str, through: int, value: str) -> None:
    """Alter the setting over one broker, once it knows the topic; wait until all of them return it."""
    port = cluster.brokers[through].port

    def altered() -> bool:
        [answer] = ask(port, alteration(topic, "retention.ms", value), 0, WAIT_S).responses
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), answer
        return bool(answer.error_code == ErrorCode.NONE)

    until(altered, f"broker {through} takes {value}", WAIT_S)
    for broker_id in range(len(cluster.brokers)):
        until(lambda broker_id=broker_id: retention_of(cluster, topic, broker_id) == value, f"{value} at {broker_id}")  # type: ignore[misc]


def lag_behind(cluster: MixedCluster, stopped: int, load: NumberedLoad) -> None:
    """A follower that stands still leaves the in-sync replicas of the others' partitions, and comes back."""
    others = [number for number, replicas in enumerate(ASSIGNMENT) if replicas[0] != stopped]
    cluster.brokers[stopped].send(signal.SIGSTOP)
    try:
        until(
            lambda: all(stopped not in cluster.state(LOAD, number)["isr"] for number in others),
            f"in-sync replicas without broker {stopped}",
            WAIT_S,
        )
    finally:
        cluster.brokers[stopped].send(signal.SIGCONT)
    wait_in_sync(cluster, LOAD, 3)
    load.goes_on()


def leave_and_come_back(cluster: MixedCluster, broker_id: int, load: NumberedLoad, committed_before: int) -> None:
    """A controlled shutdown: its partitions and its groups are the others' at once."""
    commit(cluster.bootstrap, "group", LOAD, committed_before)
    assert cluster.brokers[broker_id].stop() == 0
    load.goes_on()
    assert committed(cluster.bootstrap, "group", LOAD) == committed_before
    commit(cluster.bootstrap, "group", LOAD, committed_before + 1)
    cluster.start(broker_id)
    wait_in_sync(cluster, LOAD, 3)
    wait_in_sync(cluster, "__consumer_offsets", 3)
    elect_preferred(cluster, LOAD, [0, 1, 2])
    assert committed(cluster.bootstrap, "group", LOAD) == committed_before + 1


def crash_and_come_back(cluster: MixedCluster, broker_id: int, load: NumberedLoad) -> None:
    cluster.brokers[broker_id].kill()
    load.goes_on()
    cluster.start(broker_id)
    wait_in_sync(cluster, LOAD, 3)
    load.goes_on()


@pytest.mark.by_day(2, group="mixed clusters")
def test_each_kind_as_controller(tmp_path: pathlib.Path) -> None:
    with MixedCluster(tmp_path, [KAFKA, GREGOR, GREGOR], SETTINGS) as cluster:
        cluster.start()
        create(cluster, LOAD, ASSIGNMENT)
        create(cluster, "moves", [[0, 1]])
        with (
            NumberedLoad(cluster.bootstrap, LOAD, 3) as load,
            NumberedLoad(cluster.bootstrap, "moves", 1) as moves,
            Reader(cluster.bootstrap, "readers", load) as reader,
        ):
            load.goes_on()
            for controller, other in ((1, 0), (0, 1)):
                cluster.force_controller(controller)
                load.goes_on()
                made = f"made-under-{controller}"
                create(cluster, made, [[0, 2], [2, 0]])
                for through in (0, 1):
                    alter_retention(cluster, made, through, f"{10**9 + controller * 10 + through}")
                lag_behind(cluster, 0 if controller else 2, load)
                for number, broker_id in enumerate((0, 2)):
                    cluster.force_controller(controller)
                    leave_and_come_back(cluster, broker_id, load, 10 * (controller * 2 + number))
                cluster.force_controller(controller)
                for replicas, successor in (([2, 1], other), ([1, 0], controller)):
                    reassign(cluster, "moves", replicas, successor)
                    moves.goes_on()
                delete(cluster, made, 0 if controller else 2)
            for broker_id in (0, 1):
                crash_and_come_back(cluster, broker_id, load)
            for one in (load, moves):
                one.finish()
                one.check_stored(cluster.bootstrap)
            reader.finish()
            verify_replicas(cluster, LOAD, tmp_path / "verification")
        for broker in cluster.brokers:
            assert broker.stop() == 0
        check_replicas(cluster, LOAD, 3)
