"""Flags that Apache Kafka's tools have and gregor's do not: the answer names the reason, or the flag to use instead."""

from __future__ import annotations

import pytest

from gregor.broker import __main__ as gregor
from gregor.broker.cli import other_flags

TOOLS = (
    *("topics", "configs", "groups", "get-offsets", "delete-records", "log-dirs", "leader-election", "dump-log"),
    *("transactions", "features", "acls"),
)
WITH_ZOOKEEPER = ("topics", "configs", "leader-election")
"""Tools that find their brokers by ZooKeeper."""


@pytest.mark.parametrize(
    ("command", "flag"), [(command, flag) for command, flags in other_flags.OF_COMMANDS.items() for flag in flags]
)
def test_each_is_answered_with_a_reason(command: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([flag, "x"], [f"{flag}=x"]):
        assert gregor.main([command, *arguments]) == 1
        told = capsys.readouterr().err
        assert told.startswith(f"gregor {command}: {flag} is not supported: ") and told.endswith(".\n")
        assert told.count("\n") == 1


@pytest.mark.parametrize("command", TOOLS)
def test_zookeeper_and_controller_flags_are_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("--bootstrap-controller",) if command in WITH_ZOOKEEPER else ("--zookeeper", "--bootstrap-controller"):
        assert gregor.main([command, flag, "localhost:2181"]) == 1
        assert "--bootstrap-server" in capsys.readouterr().err


def test_flag_that_kafka_lacks_has_no_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert gregor.main(["topics", "--lits"]) == 1
    assert "No such option" in capsys.readouterr().err


def test_a_broker_stays_in_the_foreground(capsys: pytest.CaptureFixture[str]) -> None:
    assert gregor.main(["start", "-daemon", "server.properties"]) == 1
    assert "-daemon is not supported" in capsys.readouterr().err


@pytest.mark.parametrize("command", [*TOOLS, "console-producer", "console-consumer", "verify", "start"])
def test_each_tool_tells_the_version(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert gregor.main([command, "--version"]) == 0
    assert capsys.readouterr().out.startswith("gregor")


@pytest.mark.parametrize(
    ("command", "flag", "taken"),
    [
        ("console-producer", "--line-reader", "org.apache.kafka.tools.LineMessageReader"),
        ("console-producer", "--line-reader", "kafka.tools.ConsoleProducer$LineMessageReader"),
        ("console-consumer", "--formatter", "kafka.tools.DefaultMessageFormatter"),
        ("console-consumer", "--formatter", "org.apache.kafka.tools.consumer.NoOpMessageFormatter"),
    ],
)
def test_classes_that_have_a_twin(command: str, flag: str, taken: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = [command, "--topic", "t", "--bootstrap-server", "127.0.0.1:1"]
    more = ["--max-block-ms", "0"] if command == "console-producer" else ["--partition", "0", "--group", "g"]
    assert gregor.main([*given, *more, flag, taken]) == 1
    assert "classes" not in capsys.readouterr().err
    assert gregor.main([*given, flag, "my.Own"]) == 1
    assert "gregor loads no Java classes" in capsys.readouterr().err
