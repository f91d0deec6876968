"""`gregor cluster`: the commands that it would run; one start with a real ZooKeeper."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gregor.broker.__main__ import main
from gregor.broker.cli import cluster
from gregor.broker.launch.local_zookeeper import hold
from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from tests.support.commands import RunningCommand, alone_at_zookeepers_port, pid_of


def settings(folder: Path, count: int = 3, port: int = 0, **overrides: str) -> list[BrokerConfig]:
    given = {key.replace("_", "."): value for key, value in overrides.items()}
    return [BrokerConfig(own) for own in cluster.make_plan(count, folder, given, "z:2181/c", port).settings]


def test_each_broker_has_a_number_a_port_and_a_folder(tmp_path: Path) -> None:
    found = settings(tmp_path)
    assert [one.broker_id for one in found] == [0, 1, 2]
    assert [one.log_dirs for one in found] == [[f"{tmp_path}/broker-{index}"] for index in range(3)]
    assert len({one.listeners[0].port for one in found}) == 3
    assert {one.listeners[0].host for one in found} == {"localhost"}
    assert {one["zookeeper.connect"] for one in found} == {"z:2181/c"}
    assert {one["default.replication.factor"] for one in found} == {3}


def test_overrides_win(tmp_path: Path) -> None:
    found = settings(
        tmp_path, 2, listeners="PLAINTEXT://127.0.0.1:19000", broker_id="5", default_replication_factor="1"
    )
    assert [one.broker_id for one in found] == [5, 6]
    assert [one.listeners[0].text for one in found] == ["PLAINTEXT://127.0.0.1:19000", "PLAINTEXT://127.0.0.1:19001"]
    assert [one["default.replication.factor"] for one in found] == [1, 1]
    assert [one["offsets.topic.replication.factor"] for one in found] == [2, 2]


def test_the_first_brokers_number_may_be_given_by_its_new_name(tmp_path: Path) -> None:
    assert [one.broker_id for one in settings(tmp_path, 2, node_id="5")] == [5, 6]


def test_numbers_may_be_generated(tmp_path: Path) -> None:
    plan = cluster.make_plan(2, tmp_path, {"broker.id": "-1"}, "z:2181", 0)
    assert [own["broker.id"] for own in plan.settings] == ["-1", "-1"]


def test_data_is_stored_in_the_given_folder(tmp_path: Path) -> None:
    for key in ("log_dir", "log_dirs"):
        found = settings(tmp_path / "c", 1, **{key: str(tmp_path / "data")})
        assert found[0].log_dirs == [f"{tmp_path}/data/broker-0"]


def test_folder_of_a_running_zookeeper_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = hold(tmp_path / "zookeeper" / "data")
    assert main(["cluster", "--dir", str(tmp_path)]) == 1
    lock.release()
    said = capsys.readouterr().err
    assert said == f"gregor cluster: {tmp_path}/zookeeper/data: a ZooKeeper that runs works on this folder.\n"
    assert not (tmp_path / "zookeeper" / "zoo.cfg").exists()


def test_bad_settings_end_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["cluster", "--dir", str(tmp_path), "--zookeeper", "z:2181"]
    assert main([*command, "--override", "num.partitions=0"]) == 1
    assert "gregor cluster: num.partitions=0: must be" in capsys.readouterr().err
    with pytest.raises(ConfigError):
        cluster.make_plan(3, tmp_path, {"port": "65535"}, "z:2181", 0)


def test_folder_of_a_single_broker_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "meta.properties").touch()
    assert main(["cluster", "--dir", str(tmp_path), "--zookeeper", "z:2181"]) == 1
    assert "contains the data of a single broker" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["cluster", "--dir", str(tmp_path / "file" / "below"), "--zookeeper", "z:2181"]) == 1
    assert "Not a directory" in capsys.readouterr().err


def doctor(capsys: pytest.CaptureFixture[str], bootstrap: str, zookeeper: str) -> list[str]:
    """Return the WRONG lines of `gregor doctor`, without those about free space: the machine's disk may be full."""
    capsys.readouterr()
    main(["doctor", "--bootstrap-server", bootstrap, "--zookeeper", zookeeper])
    out = capsys.readouterr().out
    assert "ZooKeeper accepts a session; brokers" in out
    return [line for line in out.splitlines() if line.startswith("WRONG") and " free (" not in line]


@pytest.mark.jvm
@pytest.mark.very_slow
def test_a_cluster_from_start_to_end_and_on_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = ("--override", "zookeeper.session.timeout.ms=4000")
    arguments = ("--brokers", "2", "--port", "0", "--dir", str(tmp_path / "data"), *quick)
    with alone_at_zookeepers_port(), RunningCommand(tmp_path, "cluster", *arguments) as running:
        said = running.until("ready after ")
        bootstrap = said.partition("--bootstrap-server ")[2].split()[0]
        topics = ["topics", "--bootstrap-server", bootstrap]
        assert main([*topics, "--create", "--topic", "orders", "--partitions", "2"]) == 0
        running.until("1 topic, 2 partitions: all in sync")
        zookeeper = said.partition("ZooKeeper ")[2].split()[0]
        assert doctor(capsys, bootstrap, zookeeper) == []
        os.kill(pid_of(said, "broker 1"), signal.SIGKILL)
        running.until("broker 1 has ended (killed by SIGKILL) and stays down")
        running.until("2 partitions: 2 under-replicated")
        replicas, down = doctor(capsys, bootstrap.split(",")[0], zookeeper)
        assert "2 partitions (orders-0, orders-1) with replicas that are not in sync" in replicas
        assert "broker 1 is not in the cluster, and has replicas of 2 partitions (orders-0, orders-1)" in down
        assert running.stop() == 0
        assert running.said.index("stopping broker 0") < running.said.index("stopping zookeeper")
    with alone_at_zookeepers_port(), RunningCommand(tmp_path, "cluster", *arguments) as running:
        running.until("1 topic, 2 partitions: all in sync")
        assert running.stop(signal.SIGTERM) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid_of(said, "zookeeper"), 0)


@pytest.mark.slow
def test_a_broker_that_cannot_start_ends_the_command_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "broker-0").touch()
    arguments = ("--brokers", "1", "--port", "0", "--dir", str(tmp_path / "data"), "--zookeeper", "127.0.0.1:1")
    with RunningCommand(tmp_path, "cluster", *arguments) as running:
        assert running.wait() == 1
    last = running.said.splitlines()[-1]
    assert last.startswith("gregor cluster: broker 0 could not start (exit code 1); its log is ")
    assert "check log.dirs" in last
