"""Working out new offsets: times, durations, scopes, plans in files, the log's bounds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.groups import command
from gregor.broker.cli.groups import reset as group_reset
from gregor.broker.cli.groups.reset import (
    Planner,
    check_combinations,
    clamp,
    parse_datetime_ms,
    parse_duration_ms,
    parse_scope,
    read_plan,
)
from gregor.broker.cli.groups.views import EMPTY

MAY_FIRST_NOON_MS = 1_714_564_800_000


def check(*arguments: str) -> None:
    """Check the flags of `gregor groups --reset-offsets` of a group and a topic."""
    given = ["--reset-offsets", "--group", "g", "--topic", "t", *arguments]
    check_combinations(command.groups.make_context("groups", given).params)


@pytest.mark.parametrize("scenario", [("--to-offset", "0"), ("--shift-by", "0"), ("--to-earliest",)])
def test_one_scenario_is_accepted(scenario: tuple[str, ...]) -> None:
    check(*scenario)


@pytest.mark.parametrize(
    "scenarios",
    [
        (),
        ("--to-latest", "--to-offset", "0"),
        ("--to-latest", "--shift-by", "0"),
        ("--to-latest", "--from-file", ""),
        ("--to-offset", "0", "--shift-by", "0"),
    ],
)
def test_none_and_several_scenarios_are_refused(scenarios: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError, match="exactly one of --to-earliest"):
        check(*scenarios)


@pytest.mark.parametrize("flag", ["--to-datetime", "--by-duration"])
def test_an_empty_time_is_refused(flag: str) -> None:
    with pytest.raises(CommandError, match="'' is not a"):
        check(flag, "")


@pytest.mark.parametrize(
    "text",
    [
        "2024-05-01T12:00:00.000",
        "2024-05-01T12:00:00",
        "2024-05-01T12:00:00.000Z",
        "2024-05-01T14:00:00.000+02:00",
        "2024-05-01T14:00:00.000+0200",
    ],
)
def test_times(text: str) -> None:
    assert parse_datetime_ms(text) == MAY_FIRST_NOON_MS


def test_milliseconds_of_a_time() -> None:
    assert parse_datetime_ms("2024-05-01T12:00:00.123") == MAY_FIRST_NOON_MS + 123


@pytest.mark.parametrize("text", ["", "yesterday", "2024-13-01T00:00:00"])
def test_illegal_time_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="YYYY-MM-DD"):
        parse_datetime_ms(text)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("PT0S", 0),
        ("PT1.5S", 1_500),
        ("PT1H30M", 5_400_000),
        ("P1DT1S", 86_401_000),
        ("P2D", 172_800_000),
        ("-PT1S", -1_000),
        ("PT-1S", -1_000),
        ("pt1s", 1_000),
    ],
)
def test_durations(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "PT1", "P1H", "PT1S1M"])
def test_illegal_duration_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="PnDTnHnMnS"):
        parse_duration_ms(text)


def test_a_duration_beyond_all_clocks() -> None:
    with pytest.raises(CommandError, match="is too long"):
        parse_duration_ms("P" + "9" * 400 + "D")


def test_scopes() -> None:
    assert parse_scope(["a", "b:0,2", "b:5"]) == {"a": None, "b": [0, 2, 5]}


@pytest.mark.parametrize("text", ["a:", "a:x", "a:1,", "a:-1", "a:0,2147483648", "a:" + "1" * 5000])
def test_illegal_scope_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="partitions"):
        parse_scope([text])


def test_plans_for_one_group_and_for_several() -> None:
    assert read_plan("t,0,5\nt,1,6\n\n", ["g"]) == {"g": {("t", 0): 5, ("t", 1): 6}}
    assert read_plan("t,0 , 5\x1e\n", ["g"]) == {"g": {("t", 0): 5}}
    assert read_plan('g,t,0,5\nh,"t,u",1,6\n', ["g", "h"]) == {"g": {("t", 0): 5}, "h": {("t,u", 1): 6}}


def test_a_line_for_one_of_several_groups_names_it() -> None:
    with pytest.raises(CommandError, match="line 1"):
        read_plan("t,0,5\n", ["g", "h"])


@pytest.mark.parametrize("text", ["t,0", "t,x,5", "t,0,-5", "t,2147483648,5", "g,t,0,5,6", "t,0," + "5" * 5000])
def test_broken_plans_name_their_line(text: str) -> None:
    with pytest.raises(CommandError, match="line 2"):
        read_plan(f"t,0,1\n{text}\n", ["g"])


def test_a_plan_that_is_no_csv() -> None:
    with pytest.raises(CommandError, match="is not CSV"):
        read_plan("t,0,\r5", ["g"])


def test_offsets_beyond_the_log_are_moved_into_it(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = {("t", 0): 5, ("t", 1): 0, ("t", 2): 99, ("t", 3): 10, ("t", 4): 2}
    first = dict.fromkeys(wanted, 2)
    end = dict.fromkeys(wanted, 10)
    assert clamp(wanted, first, end) == {("t", 0): 5, ("t", 1): 2, ("t", 2): 10, ("t", 3): 10, ("t", 4): 2}
    warnings = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in warnings] == ["t-1", "t-2"]
    assert "start" in warnings[0] and "end" in warnings[1]


class FakePlanner:
    """Every group is to have offset 5 in t-0."""

    def __init__(self, *_arguments: object) -> None:
        pass

    def plan(self, _from_file: object) -> dict[tuple[str, int], int]:
        return {("t", 0): 5}


@pytest.fixture
def one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster has a group `g` without members."""
    monkeypatch.setattr(command, "connect_admin", lambda *_: None)
    monkeypatch.setattr(command, "all_groups", lambda *_: ["g"])
    monkeypatch.setattr(group_reset, "Planner", FakePlanner)
    monkeypatch.setattr(
        group_reset,
        "describe_groups",
        lambda _, names, *_more: [SimpleNamespace(group_id=n, state=EMPTY) for n in names],
    )


@pytest.mark.usefixtures("one_group")
@pytest.mark.parametrize(
    ("scope", "exported"),
    [(["--group", "g"], "t,0,5\n"), (["--group", "g", "--group", "g"], "t,0,5\n"), (["--all-groups"], "g,t,0,5\n")],
)
def test_the_group_is_exported_unless_it_was_named(
    scope: list[str], exported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--reset-offsets", *scope, "--topic", "t", "--to-latest", "--export"]) == 0
    assert capsys.readouterr().out == exported


@pytest.mark.usefixtures("one_group")
def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.csv"
    file.write_bytes(b"t\xe4,0,1\n")
    assert command.main(["--reset-offsets", "--group", "g", "--from-file", str(file)]) == 1
    assert f"{file} is not UTF-8, as the files of --export are: byte 1 is not." in capsys.readouterr().err


def test_times_before_1970_are_no_names_of_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[Any] = []

    def log_offsets(_admin: object, keys: list[tuple[str, int]], spec: Any) -> dict[tuple[str, int], SimpleNamespace]:
        searched.append(getattr(spec, "timestamp", None))
        return {key: SimpleNamespace(offset=7) for key in keys}

    monkeypatch.setattr(group_reset, "log_offsets", log_offsets)
    monkeypatch.setattr(group_reset, "committed_offsets", lambda *_: {})
    given = ["--reset-offsets", "--group", "g", "--topic", "t:0", "--to-datetime", "1969-12-31T23:59:59.999"]
    admin: Any = None
    planner = Planner(admin, "g", command.groups.make_context("groups", given).params, 1)
    assert planner.plan({}) == {("t", 0): 7}
    assert searched[0] == 0
