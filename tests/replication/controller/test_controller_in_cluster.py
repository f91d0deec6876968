"""The controller of three brokers: moves, deletion, leaders, as they come out in ZooKeeper and in the data folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.exceptions import NoNodeError

from gregor.broker.launch.zookeeper_server import ZooKeeperMissing
from gregor.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    ListPartitionReassignmentsRequest,
)
from gregor.protocol.turns import run_all
from gregor.replication.store import nodes
from gregor.replication.store.nodes import ReplicaAssignment
from tests.support.gregor_cluster import PATIENCE_S, GregorCluster, until
from tests.support.wire import RawConnection

pytestmark = [pytest.mark.jvm, pytest.mark.very_slow]

_Topic = AlterPartitionReassignmentsRequest.ReassignableTopic
_Partition = AlterPartitionReassignmentsRequest.ReassignablePartition
SETTINGS = {"offsets.topic.replication.factor": "3", "log.segment.delete.delay.ms": "100"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GregorCluster]:
    try:
        with GregorCluster(tmp_path_factory.mktemp("cluster"), 3, SETTINGS, first_id=1) as cluster:
            yield cluster
    except ZooKeeperMissing as error:
        pytest.skip(str(error))


def create(cluster: GregorCluster, name: str, assignment: list[list[int]]) -> None:
    new = NewTopic(name, len(assignment), replica_assignment=assignment)

    def created() -> bool:
        # A client of this kind does not find a new controller by itself.
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        try:
            admin.create_topics([new])[name].result(PATIENCE_S)
        except KafkaException as error:
            assert error.args[0].code() == KafkaError.NOT_CONTROLLER
            return False
        return True

    until(created, f"topic {name}")


def produce(cluster: GregorCluster, name: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(name, str(number).encode())
    assert producer.flush(PATIENCE_S) == 0


def consumed(cluster: GregorCluster, name: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    found: list[int] = []

    def enough() -> bool:
        messages = consumer.consume(count, 0.2)
        found.extend(int(message.value() or b"-1") for message in messages if message.error() is None)
        return len(found) >= count

    until(enough, f"{count} records of {name}")
    consumer.close()
    return sorted(found)


def assignment(cluster: GregorCluster, name: str) -> dict[int, ReplicaAssignment]:
    return run_all(nodes.decode_topic(name, cluster.nodes.get(nodes.topic_path(name))[0])).partitions


def at_controller(cluster: GregorCluster, ask: Callable[[RawConnection], None]) -> None:
    controller = cluster.controller()
    assert controller is not None
    connection = RawConnection(cluster.brokers[controller].port)
    try:
        ask(connection)
    finally:
        connection.close()


def folders(cluster: GregorCluster, name: str) -> dict[int, list[str]]:
    """The topic's folders of each broker, with those that are about to go.

    Only their names are read: what is in them may be deleted at this moment."""
    found = {id_: os.listdir(cluster.folder / f"broker-{id_}" / "data") for id_ in cluster.brokers}
    return {id_: sorted(one for one in names if one.startswith(f"{name}-")) for id_, names in found.items()}


def test_a_move_by_request(cluster: GregorCluster) -> None:
    create(cluster, "asked", [[1, 2], [2, 3]])
    produce(cluster, "asked", 500)

    def ask(connection: RawConnection) -> None:
        wanted = [_Partition(partition_index=0, replicas=[3]), _Partition(partition_index=1, replicas=[2, 3, 1])]
        request = AlterPartitionReassignmentsRequest(topics=[_Topic(name="asked", partitions=wanted)])
        (answer,) = connection.ask(request, 0).responses
        assert [partition.error_code for partition in answer.partitions] == [0, 0]
        until(lambda: not connection.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics, "all have arrived")

    at_controller(cluster, ask)
    assert assignment(cluster, "asked") == {0: ReplicaAssignment((3,)), 1: ReplicaAssignment((2, 3, 1))}
    cluster.until_led("asked", 0)
    state = cluster.partition("asked", 0)
    assert state is not None
    assert (state.leader, state.isr) == (3, (3,))
    cluster.until_isr("asked", [1, 2, 3], 1)
    wanted = {1: ["asked-1"], 2: ["asked-1"], 3: ["asked-0", "asked-1"]}
    until(lambda: folders(cluster, "asked") == wanted, "old replicas are deleted")
    assert consumed(cluster, "asked", 500) == list(range(500))


def test_a_move_by_the_node_of_old_tools(cluster: GregorCluster) -> None:
    create(cluster, "noted", [[1]])
    produce(cluster, "noted", 100)
    cluster.nodes.create(nodes.REASSIGNMENT, nodes.encode_reassignments({("noted", 0): (2, 3)}))
    until(lambda: cluster.nodes.exists(nodes.REASSIGNMENT) is None, "the move is done with")
    assert assignment(cluster, "noted") == {0: ReplicaAssignment((2, 3))}
    assert consumed(cluster, "noted", 100) == list(range(100))


def test_first_use_through_a_broker_that_is_not_the_controller(cluster: GregorCluster) -> None:
    other = next(id_ for id_ in cluster.brokers if id_ != cluster.controller())
    producer = Producer({"bootstrap.servers": cluster.brokers[other].bootstrap})
    producer.produce("used", b"1")
    assert producer.flush(PATIENCE_S) == 0
    cluster.until_led("used")


def test_creation_elsewhere_than_at_the_controller_is_refused(cluster: GregorCluster) -> None:
    other = next(id_ for id_ in cluster.brokers if id_ != cluster.controller())
    connection = RawConnection(cluster.brokers[other].port)
    try:
        topic = CreateTopicsRequest.CreatableTopic(name="astray", num_partitions=1, replication_factor=1)
        (answer,) = connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5).topics
        assert answer.error_code == 41
    finally:
        connection.close()


def test_deletion_continues_with_the_next_controller_when_the_broker_is_back(cluster: GregorCluster) -> None:
    create(cluster, "doomed", [[1, 2, 3]])
    controller = cluster.controller()
    assert controller is not None
    away = next(id_ for id_ in cluster.brokers if id_ != controller)
    cluster.kill(away)
    until(lambda: away not in cluster.registered(), "the broker counts as gone")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics(["doomed"], operation_timeout=0.1)
    path = nodes.delete_topic_path("doomed")
    until(lambda: cluster.nodes.exists(path) is not None, "deletion is asked for")
    until(lambda: not folders(cluster, "doomed")[controller], "the controller's replica is deleted")
    cluster.kill(controller)
    until(lambda: cluster.controller() not in (None, controller), "another broker is the controller")
    assert cluster.nodes.exists(path) is not None, "a replica is left"
    cluster.start(away)
    cluster.start(controller)

    def is_gone() -> bool:
        try:
            return "doomed" not in cluster.nodes.get_children(nodes.TOPICS)
        except NoNodeError:
            return False

    until(is_gone, "the topic is deleted")
    until(lambda: folders(cluster, "doomed") == {1: [], 2: [], 3: []}, "all replicas are deleted")


def test_a_controller_that_slept_through_its_session_finds_itself_replaced(cluster: GregorCluster) -> None:
    create(cluster, "before", [[1, 2, 3]])
    produce(cluster, "before", 10)
    old = cluster.controller()
    assert old is not None
    cluster.suspend(old)
    until(lambda: cluster.controller() not in (None, old), "another broker is the controller")
    new = cluster.controller()
    alive = [id_ for id_ in cluster.brokers if id_ != old]
    cluster.until_isr("before", alive)
    cluster.resume(old)
    # It comes back as a new life of its own, follows, and has written nothing over what the new one decided.
    cluster.until_isr("before", [1, 2, 3])
    assert cluster.controller() == new
    epoch = int(cluster.nodes.get(nodes.CONTROLLER_EPOCH)[0])
    state = cluster.partition("before")
    assert state is not None
    assert state.controller_epoch == epoch

    def known_controller() -> int:
        admin = AdminClient({"bootstrap.servers": cluster.brokers[old].bootstrap})
        return admin.list_topics(timeout=PATIENCE_S).controller_id

    until(lambda: known_controller() == new, "it knows who the controller is")
    produce(cluster, "before", 10)
