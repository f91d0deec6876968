"""Of tests with the mark by_day some run each day, and all of them within days that follow each other."""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple

import pytest

from tests.support.by_day import Marked, left_out
from tests.support.sampling import of_the_day

DAY = datetime.date(2026, 11, 29)


class Mark(NamedTuple):
    args: tuple[int, ...]
    kwargs: dict[str, str]


def marked(node_id: str, count: int, parameters: dict[str, object] | None = None, **options: str) -> Marked:
    return Marked(node_id, Mark((count,), options), parameters or {})


@pytest.mark.parametrize(("total", "count"), [(1, 1), (6, 2), (7, 3), (12, 5), (5, 5)])
def test_days_have_all_items_in_turn(total: int, count: int) -> None:
    items = list(range(total))
    days = -(-total // count)
    for first in range(20):
        found = [of_the_day(items, count, DAY + datetime.timedelta(first + number)) for number in range(days)]
        assert {one for day in found for one in day} == set(items)
        assert all(len(set(day)) == count for day in found)


def test_so_many_of_a_file_run() -> None:
    tests = [marked(f"{file}.py::test_{number}", 2) for file in "ab" for number in range(5)]
    gone = left_out(tests, DAY)
    assert [sum(one.startswith(file) for one in gone) for file in "ab"] == [3, 3]
    assert gone != left_out(tests, DAY + datetime.timedelta(1))


def test_more_than_there_are() -> None:
    assert left_out([marked("a.py::test", 2)], DAY) == set() == left_out([], DAY)


def test_values_of_a_parameter_run_with_all_their_tests() -> None:
    def of(client: str) -> list[Any]:
        names = ["test_read", "test_write"]
        return [marked(f"a.py::{name}[{client}]", 1, {"client": client}, parameter="client") for name in names]

    tests = [*of("java"), *of("go"), *of("c"), marked("a.py::test_all", 1, {}, parameter="client")]
    gone = left_out(tests, DAY)
    assert "a.py::test_all" not in gone and len(gone) == 4
    assert {one.partition("[")[2] for one in gone} in ({"java]", "go]"}, {"java]", "c]"}, {"go]", "c]"})


def test_a_group_lies_in_several_files() -> None:
    tests = [marked(f"{file}.py::test_command", 1, group="commands") for file in "abc"]
    assert len(left_out(tests, DAY)) == 2
