"""The history of a group on a running broker: written, kept over a stop and a crash, shown by the command."""

from __future__ import annotations

import json
import pathlib
import time
from typing import Any

import pytest
from confluent_kafka import Consumer

from gregor.protocol.topic_names import REBALANCES_TOPIC
from tests.broker.cli.tool import Tool
from tests.support.processes import BrokerProcess

pytestmark = pytest.mark.slow

WAIT_S = 120.0
QUICK = {"group.initial.rebalance.delay.ms": "0"}


def member(broker: BrokerProcess, client_id: str) -> Consumer:
    """Return a member that has its partitions."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "client.id": client_id, "log_level": 0}
    )
    consumer.subscribe(["t"])
    deadline = time.monotonic() + WAIT_S
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < deadline
    return consumer


def rebalances(tool: Tool, count: int) -> list[dict[str, Any]]:
    """Return the history, once it has so many entries."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            found: list[dict[str, Any]] = json.loads(tool.run("groups", "--history", "g", "--json"))["rebalances"]
        except AssertionError:
            found = []  # there is no history yet
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def test_history_outlives_the_broker(tmp_path: pathlib.Path) -> None:
    with BrokerProcess(tmp_path, QUICK) as broker:
        tool = Tool(broker.bootstrap)
        assert "there is no history of group 'g'" in tool.run("groups", "--history", "g", code=1)
        tool.run("topics", "--create", "--topic", "t", "--partitions", "2")
        member(broker, "first").close()
        # Not waited for: a broker that stops writes what it has not written yet.
        assert broker.stop() == 0
        broker.start()
        assert [one["outcome"] for one in rebalances(tool, 2)] == ["assigned", "empty"]
        member(broker, "second").close()
        assert len(rebalances(tool, 4)) == 4
        broker.kill()
        broker.start()
        found = rebalances(tool, 4)
        assert [(one["epoch"], one["causes"][0]["trigger"], one["causes"][0]["client_id"]) for one in found] == [
            (1, "member joined", "first"),
            (2, "member left", "first"),
            (3, "member joined", "second"),
            (4, "member left", "second"),
        ]
        heading, *rows = tool.run("groups", "--history", "g").splitlines()
        assert heading.split()[:3] == ["GENERATION", "BEGAN", "MS"]
        assert [row.split()[0] for row in rows] == ["1", "2", "3", "4"]
        assert "cause: " in tool.run("groups", "--history", "g", "--verbose")


def test_deletion_of_the_group_deletes_its_history(tmp_path: pathlib.Path) -> None:
    with BrokerProcess(tmp_path, QUICK) as broker:
        tool = Tool(broker.bootstrap)
        tool.run("topics", "--create", "--topic", "t")
        member(broker, "first").close()
        rebalances(tool, 2)
        assert REBALANCES_TOPIC in tool.run("topics", "--list")
        assert REBALANCES_TOPIC not in tool.run("topics", "--list", "--exclude-internal")
        tool.run("groups", "--delete", "--group", "g")
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                assert "there is no history" in tool.run("groups", "--history", "g", code=1)
                break
            except AssertionError:
                assert time.monotonic() < deadline
                time.sleep(0.1)


def test_history_that_is_switched_off(tmp_path: pathlib.Path) -> None:
    with BrokerProcess(tmp_path, {**QUICK, "gregor.rebalance.history.enable": "false"}) as broker:
        tool = Tool(broker.bootstrap)
        tool.run("topics", "--create", "--topic", "t")
        member(broker, "first").close()
        assert "there is no history of group 'g'" in tool.run("groups", "--history", "g", code=1)
        assert REBALANCES_TOPIC not in tool.run("topics", "--list")
