"""The effect of zookeeper.connect, and of the files of Apache Kafka's releases as they are."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.cluster import store_factory
from gregor.broker.cluster.store_factory import NoSuchStore, check_members, check_store, in_cluster, zookeeper_store
from gregor.broker.node.store import StartError
from gregor.broker.server import Server
from gregor.config.broker import BrokerConfig
from gregor.replication.store.metadata_store import StoreFailed
from tests.broker.test_server import run
from tests.support.processes import free_port

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
def test_stock_files(run: Any, tmp_path: Path, release: str) -> None:
    """Start with a stock file, unchanged except for its ports and its folder, which a test must not share with others.

    Files of releases that name a ZooKeeper behave as with Apache Kafka: without ZooKeeper the broker does not start,
    and its error names the reason.
    """
    file = tmp_path / "server.properties"
    file.write_text(FILES[release])
    as_it_is = BrokerConfig.load(str(file))
    assert (as_it_is.warnings, len(as_it_is.listeners)) == ([], 1)
    with_zookeeper = "ZooKeeper" in release or release < "3"
    assert bool(as_it_is["zookeeper.connect"]) is with_zookeeper
    own = [("listeners", "PLAINTEXT://127.0.0.1:0"), ("log.dirs", str(tmp_path / "data"))]
    if with_zookeeper:
        own += [("zookeeper.connect", f"127.0.0.1:{free_port()}"), ("zookeeper.connection.timeout.ms", "50")]
    config = BrokerConfig.load(str(file), [*own, ("advertised.listeners", "PLAINTEXT://127.0.0.1:0")])

    async def test() -> None:
        server = Server(config)
        if with_zookeeper:
            with pytest.raises(StartError, match="no ZooKeeper answered within 50 ms.*gregor zookeeper.*remove zook"):
                await server.start()
            return
        await server.start()
        assert server.info.broker_id == as_it_is.broker_id
        await server.stop()

    run(test())


def _nobody(_address: str) -> bool:
    return False


def test_stock_file_where_no_zookeeper_is(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a single broker, twice, with a stock file's zookeeper.connect=localhost:2181 and no server there.

    The broker belongs to a cluster if a ZooKeeper is there, if zookeeper.connect or broker.id is not as in a stock
    file, or if its folder belonged to a broker of a cluster.
    """
    monkeypatch.setattr(store_factory, "is_listening", _nobody)
    stock = {"zookeeper.connect": "localhost:2181", "broker.id": "0", "log.dirs": str(tmp_path / "data")}
    config = BrokerConfig({**stock, "listeners": "PLAINTEXT://127.0.0.1:0"})
    for _ in range(2):

        async def test() -> None:
            server = Server(config)
            await server.start()
            await server.stop()

        run(test())
        assert not in_cluster(BrokerConfig(stock))
    other = {**stock, "log.dirs": str(tmp_path / "other")}
    assert in_cluster(BrokerConfig({**other, "zookeeper.connect": "localhost:2182"}))
    assert in_cluster(BrokerConfig({"zookeeper.connect": "localhost:2181", "log.dirs": other["log.dirs"]}))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "meta.properties").write_text("broker.id=0\nversion=0\ncluster.id=x\n")
    assert in_cluster(BrokerConfig(other))
    with pytest.raises(NoSuchStore, match="nothing listens there; start a ZooKeeper"):
        check_members("localhost:2181")
    monkeypatch.setattr(store_factory, "is_listening", lambda _address: True)
    assert in_cluster(BrokerConfig(stock))
    check_members("localhost:2181")


def test_only_a_refused_connection_shows_that_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert store_factory.is_listening(address)
    assert not store_factory.is_listening(address)


def test_nothing_of_zookeeper_without_it() -> None:
    config = BrokerConfig()
    check_store(config)
    check_members("")
    assert not in_cluster(config)


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("zookeeper.set.acl", "true", "set gregor.zookeeper.jaas.config"),
        ("zookeeper.connect", "/kafka", "remove zookeeper.connect"),
        ("zookeeper.connect", "zk:2181/kafka/", "remove zookeeper.connect"),
        ("zookeeper.connect", "foo:bar", "remove zookeeper.connect"),
        ("zookeeper.connect", ":2181", "remove zookeeper.connect"),
        ("zookeeper.connect", "localhost:99999", "remove zookeeper.connect"),
    ],
)
def test_settings_of_zookeeper_that_cannot_be_followed(key: str, value: str, remedy: str) -> None:
    config = BrokerConfig({"zookeeper.connect": "zk:2181", key: value})
    with pytest.raises(NoSuchStore, match=f"{key}={value}") as refusal:
        check_store(config)
    assert remedy in str(refusal.value)


def test_several_brokers_refuse_it_before_they_start() -> None:
    with pytest.raises(NoSuchStore, match="zookeeper.connect=foo:bar: must be host:port"):
        check_members("foo:bar")


def test_an_element_may_be_empty() -> None:
    connect = f"127.0.0.1:{free_port()},"
    config = BrokerConfig({"zookeeper.connect": connect, "zookeeper.connection.timeout.ms": "50"})
    check_store(config)
    with pytest.raises(StoreFailed, match="no ZooKeeper answered within 50 ms"):
        asyncio.run(zookeeper_store(config).start())


@pytest.mark.parametrize(
    "given",
    [
        {"process.roles": "broker"},
        {"process.roles": "controller"},
        {"controller.quorum.voters": "1@a:9093,2@b:9093,3@c:9093", "process.roles": "broker,controller"},
        {"controller.quorum.bootstrap.servers": "a:9093,b:9093"},
    ],
)
def test_a_member_of_a_quorum_does_not_start_on_its_own(given: dict[str, str]) -> None:
    with pytest.raises(NoSuchStore, match="set zookeeper.connect, or remove the settings of KRaft"):
        check_store(BrokerConfig(given))
    check_store(BrokerConfig({**given, "zookeeper.connect": "zoo1:2181"}))


@pytest.mark.parametrize("voters", ["1@localhost:9093", "1@kafka:9093", ""])
def test_a_quorum_of_one_is_a_single_broker(voters: str) -> None:
    check_store(BrokerConfig({"process.roles": "controller,broker", "controller.quorum.voters": voters}))
