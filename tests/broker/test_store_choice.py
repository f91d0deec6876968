"""What becomes of zookeeper.connect, and that the files that Apache Kafka came with start as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.server import Server
from broker.store_choice import NoSuchStore, check_store
from config.broker import BrokerConfig
from tests.broker.test_server import run

__all__ = ["run"]  # a fixture

COMMON = """\
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
WITH_ZOOKEEPER = COMMON + "broker.id=0\nzookeeper.connect=localhost:2181\ngroup.initial.rebalance.delay.ms=0\n"
WITH_RAFT = (
    COMMON
    + """\
process.roles=broker,controller
node.id=1
inter.broker.listener.name=PLAINTEXT
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=\
CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
"""
)
FILES = {
    "1.1.1": WITH_ZOOKEEPER + "zookeeper.connection.timeout.ms=6000\nlog.dirs=/tmp/kafka-logs\n",
    "2.8.2": WITH_ZOOKEEPER + "zookeeper.connection.timeout.ms=18000\nlog.dirs=/tmp/kafka-logs\n",
    "3.9.1 with ZooKeeper": WITH_ZOOKEEPER + "zookeeper.connection.timeout.ms=18000\nlog.dirs=/tmp/kafka-logs\n",
    "3.9.1": WITH_RAFT + "controller.quorum.voters=1@localhost:9093\nlog.dirs=/tmp/kraft-combined-logs\n",
    "4.3.1": WITH_RAFT
    + "controller.quorum.bootstrap.servers=localhost:9093\nlog.dirs=/tmp/kraft-combined-logs\n"
    + "share.coordinator.state.topic.replication.factor=1\nshare.coordinator.state.topic.min.isr=1\n",
}


@pytest.mark.parametrize("release", FILES)
def test_stock_files(run: Any, tmp_path: Path, release: str, caplog: pytest.LogCaptureFixture) -> None:
    """Unchanged but for what a test must not share with others: the port and the folder."""
    file = tmp_path / "server.properties"
    file.write_text(FILES[release])
    as_it_is = BrokerConfig.load(str(file))
    assert (as_it_is.warnings, len(as_it_is.listeners)) == ([], 1)
    own = [("listeners", "PLAINTEXT://127.0.0.1:0"), ("log.dirs", str(tmp_path / "data"))]
    config = BrokerConfig.load(str(file), [*own, ("advertised.listeners", "PLAINTEXT://127.0.0.1:0")])

    async def test() -> None:
        server = Server(config)
        await server.start()
        assert server.info.broker_id == as_it_is.broker_id
        await server.stop()

    run(test())
    assert ("no ZooKeeper is asked" in caplog.text) is ("ZooKeeper" in release or release < "3")


@pytest.mark.parametrize(
    "text", ["localhost:2181", "127.0.0.1:2181,localhost:2182/kafka", "[::1]:2181", "LOCALHOST", "127.0.0.2:1"]
)
def test_a_zookeeper_of_this_machine_is_left_aside(text: str, caplog: pytest.LogCaptureFixture) -> None:
    check_store(BrokerConfig({"zookeeper.connect": text, "broker.id": "0"}))
    assert text in caplog.text
    with pytest.raises(NoSuchStore, match=r"set broker\.id"):
        check_store(BrokerConfig({"zookeeper.connect": text}))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("zk1:2181", "zk1"),
        ("localhost:2181,zk2:2181/chroot", "zk2"),
        ("10.0.0.1:2181,10.0.0.2:2181", "10.0.0.1, 10.0.0.2"),
        ("[fe80::1]:2181", "fe80::1"),
    ],
)
def test_a_cluster_is_not_taken_for_a_single_broker(text: str, named: str) -> None:
    with pytest.raises(NoSuchStore) as refusal:
        check_store(BrokerConfig({"zookeeper.connect": text, "broker.id": "0"}))
    assert f"(on {named})" in str(refusal.value) and "leave the key out" in str(refusal.value)


def test_nothing_is_said_without_it(caplog: pytest.LogCaptureFixture) -> None:
    check_store(BrokerConfig())
    assert caplog.text == ""
