"""Three ZooKeepers, one of which dies: the brokers continue, and find another server."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.broker.launch.zookeeper_server import ZooKeeperMissing, find_jars
from tests.support.gregor_cluster import GregorCluster, until
from tests.support.zookeeper import ZooKeeperEnsemble, ZooKeeperProcess

pytestmark = [pytest.mark.jvm, pytest.mark.very_slow]

TIMEOUT_S = 120.0


def create(cluster: GregorCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, replica_assignment=[[0, 1]])])[topic].result(TIMEOUT_S)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_brokers_outlive_one_of_three_servers(tmp_path: Path, role: str) -> None:
    try:
        find_jars()
    except ZooKeeperMissing as error:
        pytest.skip(str(error))
    # The servers may need some seconds to elect a leader, for which sessions must last.
    settings = {"zookeeper.session.timeout.ms": "10000"}
    with ZooKeeperEnsemble(tmp_path) as ensemble, GregorCluster(tmp_path, 2, settings, zookeeper=ensemble) as cluster:
        create(cluster, "before")
        cluster.until_isr("before", [0, 1])

        def terms() -> tuple[int | None, int, int]:
            """The controller, and the leader with its epoch: a follower that lags on a busy machine is no new term."""
            state = cluster.partition("before")
            assert state is not None
            return cluster.controller(), state.leader, state.leader_epoch

        at_first = terms()
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
        refused: list[object] = []

        def send() -> None:
            producer.produce("before", b"value", on_delivery=lambda error, _: error and refused.append(error))
            producer.poll(0)

        (leader,) = (server for server in ensemble.servers if server.leads)
        dies = leader if role == "leader" else next(server for server in ensemble.servers if server is not leader)
        send()
        dies.kill()
        send()

        def is_led(server: ZooKeeperProcess) -> bool:
            return b"Mode:" in server.ask(b"srvr")

        others = [server for server in ensemble.servers if server is not dies]
        until(lambda: all(map(is_led, others)), "the others serve")
        # The uses of ZooKeeper work: a topic's nodes, its leader's election, its ISR after a broker's death.
        create(cluster, "after")
        cluster.until_isr("after", [0, 1])
        send()
        assert producer.flush(TIMEOUT_S) == 0
        assert refused == []
        assert cluster.registered() == {0, 1}
        assert terms() == at_first, "no session was lost"
        cluster.kill(0)
        cluster.until_isr("after", [1])
        assert cluster.until_led("after", not_by=0) == 1

        dies.launch()
        dies.until_ready()
        cluster.start(0)
        cluster.until_isr("after", [0, 1])
