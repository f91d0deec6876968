"""`gregor start` before there is a broker: options, refused settings, the banner."""

from __future__ import annotations

import os
import pathlib
import signal
import sys

import pytest

from gregor.broker.cli import start
from gregor.broker.startup_report import ServerInfo
from gregor.config.broker import BrokerConfig
from gregor.config.environment import TopicWish


def info(*listeners: tuple[str, str, int]) -> ServerInfo:
    return ServerInfo(1, "abcdefghijklmnopqrstuv", list(listeners), ["data"])


def test_overrides_keep_their_order_and_later_equal_signs() -> None:
    given = start.make_parser().parse_args(["a.properties", "--override", "a=b=c", "--override", " k = v "])
    assert given.file == "a.properties"
    assert given.override == [("a", "b=c"), ("k", "v")]


@pytest.mark.parametrize("arguments", [["--override", "novalue"], ["--over", "a=b"], ["one", "two"]])
def test_bad_arguments_end_with_1(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert start.main(arguments) == 1
    assert "gregor start: " in capsys.readouterr().err


def test_refused_setting_names_key_value_and_range(capsys: pytest.CaptureFixture[str]) -> None:
    assert start.main(["--override", "num.partitions=0"]) == 1
    message = capsys.readouterr().err
    assert message.startswith("gregor start: num.partitions=0: ")
    assert "at least 1" in message


def test_unreadable_file(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert start.main([str(tmp_path / "none.properties")]) == 1
    assert "none.properties: No such file" in capsys.readouterr().err


def test_banner_has_addresses_and_next_commands() -> None:
    text = start.banner(info(("PLAINTEXT", "127.0.0.1", 9092), ("PLAINTEXT", "::1", 9092)), "gregor")
    assert "PLAINTEXT://127.0.0.1:9092, PLAINTEXT://[::1]:9092" in text
    assert os.path.abspath("data") in text
    commands = [line for line in text.splitlines() if "gregor " in line and line.startswith("  ")]
    assert len(commands) == 3
    assert not any("--bootstrap-server" in line for line in commands)


@pytest.mark.parametrize(
    ("listener", "address"),
    [
        (("PLAINTEXT", "127.0.0.1", 19092), "localhost:19092"),
        (("PLAINTEXT", "::", 19092), "localhost:19092"),
        (("PLAINTEXT", "::1", 9092), "[::1]:9092"),
        (("PLAINTEXT", "192.0.2.7", 9092), "192.0.2.7:9092"),
        (("PLAINTEXT", "2001:db8::1", 9092), "[2001:db8::1]:9092"),
    ],
)
def test_banner_names_the_broker_where_it_is_not_the_default(listener: tuple[str, str, int], address: str) -> None:
    text = start.banner(info(listener), "gregor")
    assert text.count(f"--bootstrap-server {address}") == 3


def test_program_name_can_be_typed_again(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "bin" / "gregor"
    script.parent.mkdir()
    script.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setenv("PATH", "")
    assert start.program_name() == "bin/gregor"
    monkeypatch.setenv("PATH", str(script.parent))
    assert start.program_name() == "gregor"
    monkeypatch.setattr(sys, "argv", ["/x/broker/__main__.py"])
    assert start.program_name().endswith("-m gregor.broker")


def load(environ: dict[str, str], *arguments: str) -> tuple[BrokerConfig, list[TopicWish]]:
    return start.load_config(start.make_parser().parse_args(arguments), environ)


def test_command_line_over_environment_over_file(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\nnum.partitions=1\nlog.dirs=a")
    environ = {"KAFKA_NUM_PARTITIONS": "2", "KAFKA_LOG_DIRS": "b", "KAFKA_CREATE_TOPICS": "orders:1:1"}
    config, topics = load(environ, str(file), "--env", "--override", "log.dirs=c")
    assert (config.broker_id, config["num.partitions"], config.log_dirs) == (1, 2, ["c"])
    assert topics == [TopicWish("orders", 1, 1, None)]
    assert "environment: KAFKA_NUM_PARTITIONS sets num.partitions=2" in config.notes


def test_variables_have_no_effect_without_the_option() -> None:
    config, topics = load(
        {"KAFKA_NUM_PARTITIONS": "2", "KAFKA_HOME": "/opt/kafka", "KAFKA_CREATE_TOPICS": "orders:1:1"}
    )
    assert (config["num.partitions"], topics) == (1, [])
    assert config.notes == ["these variables have no effect without --env: KAFKA_CREATE_TOPICS, KAFKA_NUM_PARTITIONS"]
    assert load({"PATH": "/bin", "KAFKA_HOME": "/opt/kafka"})[0].notes == []


def test_error_of_an_environment_setting_names_its_source(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "0")
    assert start.main(["--env"]) == 1
    message = capsys.readouterr().err
    assert message.startswith("gregor start: num.partitions=0: ")
    assert "(set by the environment)" in message


@pytest.mark.parametrize("terminal", [True, False])
def test_a_hang_up_before_the_handler_is_there_ends_only_a_start_on_a_terminal(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "isatty", lambda descriptor: terminal)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    assert start.main(["--help"]) == 0
    assert signal.getsignal(signal.SIGHUP) is (signal.SIG_DFL if terminal else signal.SIG_IGN)
