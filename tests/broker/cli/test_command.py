"""The common part of the commands: flags that are given several times."""

from __future__ import annotations

import pytest

from gregor.broker import __main__ as gregor


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (
            ["configs", "--alter", "--topic", "t", "--add-config", "a=1", "--add-config=b=2"],
            "--add-config is given 2 times, but has one value, KEY=VALUE,..",
        ),
        (["topics", "--delete", "--topic", "a", "--topic", "b", "--topic", "c"], "--topic is given 3 times"),
        (
            ["console-consumer", "--include", "a", "--whitelist", "b"],
            "--include or --whitelist is given 2 times, but has one value",
        ),
        (["groups", "--list", "--state", "--state", "empty"], "--state is given 2 times"),
        (["transactions", "describe", "--transactional-id", "a", "--transactional-id", "b"], "--transactional-id is"),
    ],
)
def test_a_flag_of_one_value_is_given_once(
    arguments: list[str], cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gregor.main([*arguments, "--bootstrap-server", "127.0.0.1:1"]) == 1
    captured = capsys.readouterr()
    assert f"gregor {arguments[0]}: {cause}" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["groups", "--list", "--list", "--group", "g", "--group", "h"],
        ["transactions", "--bootstrap-server", "127.0.0.1:2", "list", "--state", "odd"],
        ["configs", "--entity-type", "users", "--entity-type", "clients", "--entity-default", "--entity-default"],
    ],
)
def test_other_flags_may_be_given_several_times(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert gregor.main([*arguments, "--bootstrap-server", "127.0.0.1:1"]) == 1
    assert "times" not in capsys.readouterr().err
