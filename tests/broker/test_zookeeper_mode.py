"""One broker on a real ZooKeeper: its nodes there, its return to them, and its work while there is no ZooKeeper."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from gregor.broker.launch.zookeeper_server import ZooKeeperMissing
from gregor.broker.node.store import StartError
from gregor.replication.store import nodes
from gregor.replication.store.zookeeper import ZooKeeperStore
from tests.broker.harness import Harness
from tests.support.processes import BrokerProcess, answers_metadata
from tests.support.zookeeper import ZooKeeperProcess

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    try:
        server = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"), tick_ms=500).start()
    except ZooKeeperMissing as error:
        pytest.skip(str(error))
    yield server
    server.kill()


Start = Callable[..., Harness]


@pytest.fixture
def start(zookeeper: ZooKeeperProcess, tmp_path: Path) -> Iterator[Start]:
    """Start brokers in a tree of the test's own; those that still run are stopped in the end."""
    chroot = f"/{uuid.uuid4().hex}/kafka"
    started: list[Harness] = []

    def start(folder: Path = tmp_path / "data", server: ZooKeeperProcess = zookeeper, **settings: str) -> Harness:
        given = {
            "zookeeper_connect": server.connect + chroot,
            "zookeeper_session_timeout_ms": "10000",
            "zookeeper_connection_timeout_ms": "30000",
        }
        harness = Harness(folder, **{**given, **settings})
        try:
            harness.run(harness.node.open_storage(), PATIENCE_S)
            harness.run(harness.node.join(lambda: {"PLAINTEXT": 9092}), PATIENCE_S)
            harness.until(lambda: harness.broker.metadata.version > 0, PATIENCE_S)
        except BaseException:
            harness.stop()
            raise
        started.append(harness)
        return harness

    yield start
    for harness in started:
        if not harness.loop.is_closed():
            harness.stop()


def until(holds: Callable[[], bool], told: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, told()
        time.sleep(0.02)


def store_of(harness: Harness) -> ZooKeeperStore:
    store = harness.node.store
    assert isinstance(store, ZooKeeperStore)
    return store


def read(harness: Harness, path: str) -> bytes | None:
    found = harness.run(store_of(harness).get(path))
    return None if found is None else found[0]


def end_session(harness: Harness, server: ZooKeeperProcess) -> None:
    """End the session as the server does when a client has sent nothing for too long."""
    other = KazooClient(server.connect, client_id=store_of(harness)._kazoo.client_id)
    other.start()
    other.stop()
    other.close()


def test_it_gets_a_number_and_keeps_it(start: Start) -> None:
    harness = start()
    assert harness.broker.broker_id == harness.config.broker_id == 1001
    harness.create_topic("t", partitions=2)
    harness.produce("t", b"kept")
    registration = json.loads(read(harness, "/brokers/ids/1001") or b"")
    assert (registration["version"], registration["port"], registration["host"]) == (5, 9092, "localhost")
    assert json.loads(read(harness, "/controller") or b"")["brokerid"] == 1001
    state = nodes.decode_state(read(harness, "/brokers/topics/t/partitions/1/state") or b"")
    assert (state.leader, state.isr) == (1001, (1001,))
    harness.stop()
    harness = start()
    assert harness.broker.broker_id == 1001
    assert [record.value for record in harness.records("t")] == [b"kept"]
    harness.stop()
    assert start(harness.folder.parent / "other").broker.broker_id == 1002


def test_quotas_in_the_tree_are_in_effect(start: Start) -> None:
    harness = start(broker_id="3")
    assert harness.broker.quotas is None
    quota = nodes.encode_config({"producer_byte_rate": "1024", "SCRAM-SHA-256": "salt=x"})
    harness.run(store_of(harness).create("/config/users/alice", quota))
    harness.stop()
    quotas = start(broker_id="3").broker.quotas
    assert quotas is not None
    rate = quotas.meters_of("alice", "app").produce
    assert rate is not None and rate.bound == 1024


def test_folders_of_another_broker_or_cluster_are_refused(start: Start) -> None:
    harness = start(broker_id="3")
    harness.create_topic("t")
    harness.stop()
    with pytest.raises(StartError, match=r"belongs to broker 3.*broker id is 4"):
        start(broker_id="4")
    with pytest.raises(StartError, match=r"belongs to cluster .* Check zookeeper\.connect"):
        start(zookeeper_connect=harness.config["zookeeper.connect"] + "-other")


def test_folders_that_the_cluster_does_not_know_make_no_topics(start: Start) -> None:
    harness = start(broker_id="3")
    harness.create_topic("deleted")
    harness.produce("deleted", b"x")
    harness.stop()
    (harness.folder / "meta.properties").unlink()
    harness = start(broker_id="3", zookeeper_connect=harness.config["zookeeper.connect"] + "-other")
    assert harness.broker.metadata.names() == frozenset()
    assert (harness.folder / "deleted-0").is_dir()
    # A new topic of that name is another one.
    assert harness.run(store_of(harness).children(nodes.TOPICS)) == []


def test_a_registration_from_before_a_crash_is_waited_for(zookeeper: ZooKeeperProcess, tmp_path: Path) -> None:
    connect = f"{zookeeper.connect}/{uuid.uuid4().hex}"
    # A watcher would close the session of the killed broker, whose registration is replaced by that of another one.
    settings = {"zookeeper.connect": connect, "broker.id": "3", "gregor.session.watcher": "false"}
    with BrokerProcess(tmp_path, settings) as broker:
        broker.kill()
        # The registration of its last session, as a machine that restarts it fast enough still finds it.
        last = KazooClient(connect, timeout=30)
        last.start()
        last.delete(nodes.broker_path(3))
        last.create(nodes.broker_path(3), b"{}", ephemeral=True)
        broker.start(wait_until_ready=False)
        until(lambda: "broker.id=3 is still registered" in broker.log(), broker.log)
        last.stop()
        last.close()
        until(lambda: answers_metadata(broker.port), broker.log)


def test_after_its_session_ended_it_is_a_new_life(start: Start, zookeeper: ZooKeeperProcess) -> None:
    harness = start(broker_id="3")
    harness.create_topic("t", max_message_bytes="2000")
    harness.produce("t", b"before")
    local = harness.broker.controller_requests
    epoch, session = local.broker_epoch, store_of(harness).session_id
    # The change comes while the broker gets no notice of it.
    harness.run(store_of(harness).set("/config/topics/t", nodes.encode_config({"max.message.bytes": "3000"})))
    end_session(harness, zookeeper)
    harness.until(lambda: store_of(harness).session_id != session, PATIENCE_S)
    harness.until(lambda: local.broker_epoch > epoch, PATIENCE_S)
    harness.until(lambda: harness.produce("t", b"after").error_code == 0, PATIENCE_S)
    assert [record.value for record in harness.records("t")] == [b"before", b"after"]
    harness.until(lambda: harness.broker.topic_configs.log_config("t").max_message_bytes == 3000, PATIENCE_S)
    # It stood for election again, and gets notices of changes again.
    harness.until(lambda: harness.broker.metadata.controller_epoch >= 2, PATIENCE_S)
    harness.alter_topic("t", max_message_bytes="4000")
    harness.until(lambda: harness.broker.topic_configs.log_config("t").max_message_bytes == 4000, PATIENCE_S)
    harness.create_topic("u")


def test_it_serves_while_there_is_no_zookeeper(start: Start, tmp_path: Path) -> None:
    with ZooKeeperProcess(tmp_path / "zookeeper", tick_ms=500) as server:
        harness = start(server=server, broker_id="3")
        harness.create_topic("t")
        server.kill()
        store = store_of(harness)
        harness.until(lambda: not store._connected.is_set(), PATIENCE_S)
        assert harness.produce("t", b"alone").error_code == 0
        server.start()
        harness.until(store._connected.is_set, PATIENCE_S)
        harness.until(lambda: harness.produce("t", b"after").error_code == 0, PATIENCE_S)
        assert next(iter(harness.records("t"))).value == b"alone"
        harness.create_topic("u")
        harness.stop()
    shutil.rmtree(tmp_path / "zookeeper")


def test_no_zookeeper_no_broker(tmp_path: Path) -> None:
    harness = Harness(tmp_path, zookeeper_connect="127.0.0.1:1", zookeeper_connection_timeout_ms="50", broker_id="3")
    with pytest.raises(StartError, match=r"no ZooKeeper answered within 50 ms .*; start one there"):
        harness.run(harness.node.open_storage())
    harness.stop()
