"""`gregor start --brokers N`: the command of each member; one start with a real ZooKeeper."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.__main__ import main
from gregor.broker.cli import start
from gregor.broker.cli.start_brokers import (
    arguments_for,
    bootstrap_of,
    first_of,
    left_out,
    member_name,
    stop_on_signals,
)
from gregor.broker.launch.supervisor import Child
from tests.support.commands import RunningCommand, alone_at_zookeepers_port, pid_of, until

WELL_BEFORE_S = 20.0
"""Less than a session of 40 s."""


@pytest.fixture(autouse=True)
def the_log_as_it_was() -> Iterator[None]:
    """A supervisor in this process sends all log lines to the standard error of the moment."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_the_users_words_come_first_and_a_members_own_win() -> None:
    given = start.make_parser().parse_args(
        ["my.properties", "--env", "--brokers", "2", "--override", "log.dirs=/a", "--override", "num.partitions=3"]
    )
    words = arguments_for(given, {"log.dirs": "/a/broker-1", "broker.id": "1"})
    assert words[:2] == ["my.properties", "--env"]
    again = start.make_parser().parse_args(words)
    assert dict(again.override) == {"log.dirs": "/a/broker-1", "num.partitions": "3", "broker.id": "1"}
    assert (again.file, again.env, again.brokers) == ("my.properties", True, None)


def test_addresses_for_clients() -> None:
    async def made() -> list[Child]:
        return [Child(f"broker {number}", lambda descriptor: []) for number in range(5)]

    local, named, ipv6, loopback, starting = children = asyncio.run(made())
    local.info = {"listeners": [["PLAINTEXT", "0.0.0.0", 9092], ["OTHER", "0.0.0.0", 9999]]}
    named.info = {"listeners": [["PLAINTEXT", "192.0.2.7", 9092]]}
    ipv6.info = {"listeners": [["PLAINTEXT", "2001:db8::7", 9092]]}
    loopback.info = {"listeners": [["PLAINTEXT", "::1", 9092]]}
    assert starting.info == {}
    assert bootstrap_of(children) == "localhost:9092,192.0.2.7:9092,[2001:db8::7]:9092,[::1]:9092"


def test_the_first_of_several_works() -> None:
    async def scenario() -> None:
        never = asyncio.Event()
        task = asyncio.ensure_future(never.wait())
        await first_of(task, asyncio.sleep(0))
        assert not task.done()
        task.cancel()

    asyncio.run(scenario())


def test_signals_reach_the_brokers_through_the_supervisor() -> None:
    async def scenario() -> None:
        told: asyncio.Queue[object] = asyncio.Queue()
        supervisor: Any = SimpleNamespace(
            hurry=lambda: told.put_nowait("hurry"), hang_up=lambda: told.put_nowait("hang up")
        )
        stop = stop_on_signals(supervisor)
        os.kill(os.getpid(), signal.SIGHUP)
        assert (await told.get(), stop.is_set()) == ("hang up", False)
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()
        assert told.empty()
        os.kill(os.getpid(), signal.SIGINT)
        assert await told.get() == "hurry"

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_data_of_a_single_broker_is_not_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "meta.properties").touch()
    assert main(["start", "--brokers", "2", "--override", f"log.dirs={tmp_path}"]) == 1
    assert "contains the data of a single broker" in capsys.readouterr().err


def test_folders_of_several_brokers_are_no_partitions_of_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start.check_no_members([str(tmp_path)])
    (tmp_path / "broker-1").mkdir()
    start.check_no_members([str(tmp_path)])
    (tmp_path / "broker-1" / "meta.properties").touch()
    assert main(["start", "--override", f"log.dirs={tmp_path}"]) == 1
    assert "belongs to a local cluster and contains broker-1: start" in capsys.readouterr().err


def test_broker_without_a_number_has_a_name() -> None:
    assert [member_name(2, own) for own in ({}, {"broker.id": "-1"}, {"broker.id": "7"})] == [
        "broker #2",
        "broker #2",
        "broker 7",
    ]


def test_members_of_an_earlier_run_are_named(tmp_path: Path) -> None:
    for index in (0, 2, 4):
        (tmp_path / f"broker-{index}").mkdir()
        (tmp_path / f"broker-{index}" / "meta.properties").touch()
    assert left_out([str(tmp_path)], 5) == []
    (line,) = left_out([str(tmp_path / "none"), str(tmp_path)], 2)
    assert line.startswith("broker-2, broker-4 in ") and "--brokers 5, or move" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cpu-affinity"], "needs --brokers"),
        (["--brokers", "none"], "'none' is not a number of brokers"),
        (["--brokers", "0"], "'0' is not a number of brokers"),
        (["--brokers", "100"], "must be from 1 to 64"),
    ],
)
def test_wrong_words_are_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["start", *words]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.jvm
@pytest.mark.very_slow
def test_start_with_several_brokers_restarts_a_dead_broker(tmp_path: Path) -> None:
    listeners = ("--override", "listeners=PLAINTEXT://127.0.0.1:0")
    session = ("--override", "zookeeper.session.timeout.ms=40000")
    arguments = ("start", "--brokers", "2", "--override", f"log.dirs={tmp_path / 'data'}", *listeners, *session)
    with alone_at_zookeepers_port(), RunningCommand(tmp_path, *arguments) as running:
        said = running.until("2 brokers are ready: ")
        killed = pid_of(said, "broker 1")
        os.kill(killed, signal.SIGKILL)
        killed_s = time.monotonic()
        running.until(f"The broker (pid {killed}) has ended without closing its ZooKeeper session")
        assert time.monotonic() - killed_s < WELL_BEFORE_S
        running.until("broker 1 is started again")
        until(lambda: running.said.count("] broker 1 of cluster") == 2, lambda: f"it serves again:\n{running.said}")
        assert running.stop(signal.SIGTERM) == 0
    folders = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert folders == ["broker-0", "broker-1", "zookeeper"]
