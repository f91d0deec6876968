"""Rolling stops of three brokers as processes on a real ZooKeeper, under load, and a controller that is killed.

Producers notice nothing of it except a moment's delay.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.broker.jobs.turns import LoopGate
from gregor.broker.launch.zookeeper_server import ZooKeeperMissing
from gregor.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from gregor.protocol.turns import run_all
from gregor.replication.channels.peer import Peer
from gregor.replication.store import nodes
from tests.support.gregor_cluster import PATIENCE_S, GregorCluster, until

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.very_slow]

PARTITIONS = 6
SETTINGS = {"min.insync.replicas": "2", "auto.leader.rebalance.enable": "false"}
IDS_PER_BLOCK = nodes.PRODUCER_IDS_PER_BLOCK


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GregorCluster]:
    try:
        with GregorCluster(tmp_path_factory.mktemp("cluster"), overrides=SETTINGS) as cluster:
            yield cluster
    except ZooKeeperMissing as error:
        pytest.skip(str(error))


class Load:
    """An idempotent producer to all partitions, until `end`; each value is another."""

    def __init__(self, cluster: GregorCluster, topic: str) -> None:
        self.topic = topic
        self.sent = 0
        self.errors: list[object] = []
        self._cluster = cluster
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            self._producer.produce(
                self.topic, str(self.sent), partition=self.sent % PARTITIONS, on_delivery=self._delivered
            )
            self.sent += 1
            self._producer.poll(0.002)

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self.errors.append(error)

    def end(self) -> list[str]:
        """Stop writing; return the records that can be read now, sorted by number."""
        self._over.set()
        self._thread.join()
        assert self._producer.flush(120) == 0
        consumer = Consumer(
            {"bootstrap.servers": self._cluster.bootstrap, "group.id": "reader", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition(self.topic, index, 0) for index in range(PARTITIONS)])
        found: list[str] = []
        limit = time.monotonic() + 2 * PATIENCE_S
        while len(found) < self.sent and time.monotonic() < limit:
            found += [message.value().decode() for message in consumer.consume(10_000, 1.0) if message.error() is None]
        consumer.close()
        return sorted(found, key=int)


def create(cluster: GregorCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (made,) = admin.create_topics([NewTopic(topic, PARTITIONS, 3)]).values()
    made.result(PATIENCE_S)
    for index in range(PARTITIONS):
        cluster.until_isr(topic, cluster.brokers, index)


def preferred(cluster: GregorCluster, topic: str) -> list[int]:
    assignment = run_all(nodes.decode_topic(topic, cluster.nodes.get(nodes.topic_path(topic))[0]))
    return [replicas.replicas[0] for replicas in assignment.partitions.values()]


def test_brokers_stop_and_start_again_one_after_the_other(cluster: GregorCluster) -> None:
    create(cluster, "rolling")
    assert sorted(preferred(cluster, "rolling")) == [0, 0, 1, 1, 2, 2]
    load = Load(cluster, "rolling")
    controller = cluster.controller()
    assert controller is not None
    # The controller is the first, and once more the last, wherever it is then.
    for broker_id in (controller, *(set(cluster.brokers) - {controller}), None):
        stopped = cluster.controller() if broker_id is None else broker_id
        assert stopped is not None
        epochs = [state.leader_epoch for index in range(PARTITIONS) if (state := cluster.partition("rolling", index))]
        assert cluster.stop(stopped) == 0
        # It stopped in order: other brokers lead its partitions, and it is in no set of in-sync replicas.
        for index, before in enumerate(epochs):
            state = cluster.partition("rolling", index)
            assert state is not None
            assert stopped not in (state.leader, *state.isr)
            assert state.leader_epoch > before
        assert "although it still leads partitions" not in cluster.brokers[stopped].log()
        cluster.start(stopped)
        for index in range(PARTITIONS):
            cluster.until_isr("rolling", cluster.brokers, index)
    found = load.end()
    assert load.errors == []
    assert found == [str(number) for number in range(load.sent)]


def test_the_controller_is_killed(cluster: GregorCluster) -> None:
    create(cluster, "killed")
    load = Load(cluster, "killed")
    killed = cluster.controller()
    assert killed is not None
    cluster.kill(killed)
    until(lambda: cluster.controller() not in (None, killed), "another broker is the controller")
    rest = set(cluster.brokers) - {killed}
    for index in range(PARTITIONS):
        cluster.until_led("killed", index, not_by=killed)
        cluster.until_isr("killed", rest, index)
    cluster.start(killed)
    # The leaders request its return to the in-sync replicas from the new controller.
    for index in range(PARTITIONS):
        cluster.until_isr("killed", cluster.brokers, index)
    found = load.end()
    assert load.errors == []
    assert found == [str(number) for number in range(load.sent)]


async def asked(port: int, request: InitProducerIdRequest) -> object:
    peer = Peer("127.0.0.1", port, "test", 30_000, LoopGate())
    try:
        return await peer.send(request)
    finally:
        peer.close()
        await asyncio.sleep(0)


def test_each_broker_has_a_block_of_producer_ids(cluster: GregorCluster) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    blocks = set()
    for broker in cluster.brokers.values():
        ids = []
        for _ in range(2):
            answer = asyncio.run(asked(broker.port, request))
            assert isinstance(answer, InitProducerIdResponse)
            assert answer.error_code == 0
            ids.append(answer.producer_id)
        assert ids[1] == ids[0] + 1 or ids[1] // IDS_PER_BLOCK > ids[0] // IDS_PER_BLOCK
        blocks.add(ids[0] // IDS_PER_BLOCK)
    assert len(blocks) == len(cluster.brokers)
