"""--zookeeper: the brokers that it finds, and the errors where there are none."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from gregor.broker import __main__ as gregor
from gregor.broker.cli import zookeeper_option
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.zookeeper_option import brokers_of
from gregor.broker.launch.zookeeper_server import ZooKeeperMissing
from gregor.config.listeners import Listener
from gregor.replication.store.nodes import BrokerRegistration, encode_broker
from tests.replication.fakes import on_loop
from tests.support.processes import BrokerProcess
from tests.support.zookeeper import ZooKeeperProcess

COMMANDS = {
    "topics": ("--list",),
    "configs": ("--describe", "--topic", "t"),
    "leader-election": ("--election-type", "preferred", "--all-topic-partitions"),
    "console-consumer": ("--topic", "t"),
}


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    try:
        server = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper")).start()
    except ZooKeeperMissing as error:
        pytest.skip(str(error))
    yield server
    server.kill()


@pytest.mark.parametrize("command", COMMANDS)
def test_one_way_to_the_brokers(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    both = ("--zookeeper", "127.0.0.1:1", "--bootstrap-server", "127.0.0.1:1")
    assert gregor.main([command, *COMMANDS[command], *both]) == 1
    assert "not both" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_no_zookeeper(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_option.brokers_of, "__defaults__", (50,))
    assert gregor.main([command, *COMMANDS[command], "--zookeeper", "127.0.0.1:1"]) == 1
    printed = capsys.readouterr().err
    assert "no ZooKeeper answered within 50 ms" in printed and "Give the address in the brokers'" in printed


@pytest.mark.parametrize("given", ["foo:bar", "", "localhost:99999", "::1"])
def test_an_illegal_address(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert gregor.main(["topics", "--list", "--zookeeper", given]) == 1
    assert f"--zookeeper={given}: must be host:port[,host:port][/chroot]" in capsys.readouterr().err


@pytest.mark.jvm
@pytest.mark.slow
@on_loop
async def test_brokers_that_are_registered(zookeeper: ZooKeeperProcess) -> None:
    chroot = uuid.uuid4().hex
    with pytest.raises(CommandError, match=f"there is no Kafka cluster .* it has no /{chroot}/brokers/ids"):
        await brokers_of(f"{zookeeper.connect}/{chroot}")
    client = KazooClient(zookeeper.connect, timeout=30)
    client.start()
    assert not client.exists(f"/{chroot}")  # a search creates no node
    client.create(f"/{chroot}/brokers/ids", makepath=True)
    with pytest.raises(CommandError, match="no broker with a PLAINTEXT listener"):
        await brokers_of(f"{zookeeper.connect}/{chroot}")
    first = (Listener("SECRET", "a", 1, "SSL"), Listener("OPEN", "a", 2, "PLAINTEXT"))
    second = (Listener("PLAINTEXT", "::1", 3, "PLAINTEXT"), Listener("MORE", "b", 4, "PLAINTEXT"))
    client.create(f"/{chroot}/brokers/ids/0", encode_broker(BrokerRegistration(0, first)))
    client.create(f"/{chroot}/brokers/ids/1", encode_broker(BrokerRegistration(1, second)))
    client.create(f"/{chroot}/brokers/ids/2", b"nonsense")
    assert await brokers_of(f"{zookeeper.connect}/{chroot}/") == "a:2,[::1]:3"
    assert await brokers_of(f"{zookeeper.connect}/{chroot}", protocol="SSL") == "a:1"
    with pytest.raises(CommandError, match="Set security.protocol of --command-config to PLAINTEXT or SSL"):
        await brokers_of(f"{zookeeper.connect}/{chroot}", protocol="SASL_SSL")
    client.stop()
    client.close()


@pytest.mark.jvm
@pytest.mark.slow
def test_a_topic_is_made_and_listed(
    zookeeper: ZooKeeperProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = f"{zookeeper.connect}/{uuid.uuid4().hex}"
    with BrokerProcess(tmp_path, {"zookeeper.connect": where}):
        assert gregor.main(["topics", "--zookeeper", where, "--create", "--topic", "made"]) == 0
        assert gregor.main(["topics", "--zookeeper", where, "--list"]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "made"
