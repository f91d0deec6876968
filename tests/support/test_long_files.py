"""The order of the files of tests for the workers of pytest-xdist."""

from __future__ import annotations

import types
from typing import Any

import pytest

from tests.support.long_files import DURATIONS, SPARK, LongFilesFirst, durations, listed, next_file
from tests.support.processes import ROOT

SECONDS = {"tests/a/test_long.py": 200, "tests/b/test_middle.py": 60, "tests/c/test_shorter.py": 20}
JOBS = [f"{SPARK}test_{number}.py" for number in range(2)]
FILES = ["tests/a/test_quick.py", *SECONDS, *JOBS, "tests/z/test_quick.py"]


def order(worker: int) -> list[str]:
    """Return all files in the order in which one worker alone is given them."""
    waiting, found = [*FILES], []
    while waiting:
        found.append(next_file(waiting, SECONDS, worker))
        waiting.remove(found[-1])
    return found


def test_first_worker_begins_with_the_longest_and_comes_to_the_jobs_behind_all_long_ones() -> None:
    assert order(0) == [*SECONDS, *JOBS, FILES[0], FILES[-1]]


def test_second_worker_begins_with_the_jobs_and_leaves_files_without_a_duration_for_the_end() -> None:
    assert order(1) == [*JOBS, *reversed(SECONDS), FILES[0], FILES[-1]]


def test_further_workers_begin_with_the_shortest_and_come_to_the_jobs_last() -> None:
    assert order(2) == [*reversed(SECONDS), FILES[0], FILES[-1], *JOBS]


class Worker:
    """A worker of pytest-xdist that runs nothing."""

    shutting_down = False
    gateway = types.SimpleNamespace(id="worker")

    def __init__(self) -> None:
        self.tests: list[int] = []

    def send_runtest_some(self, indexes: list[int]) -> None:
        self.tests += indexes

    def shutdown(self) -> None:
        self.shutting_down = True


def test_a_test_during_which_its_process_ended_is_not_run_again() -> None:
    options = types.SimpleNamespace(loadscopereorder=False)
    config: Any = types.SimpleNamespace(getvalue=lambda name: ["2*popen"], option=options)
    tests = [f"tests/{file}.py::test_{number}" for file in "ab" for number in range(4)]
    scheduler, workers = LongFilesFirst(config), [Worker(), Worker()]
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, tests)
    scheduler.schedule()
    assert [worker.tests for worker in workers] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    scheduler.mark_test_complete(workers[0], 0)
    assert scheduler.remove_node(workers[0]) == tests[1]
    another = Worker()
    scheduler.add_node(another)
    scheduler.add_node_collection(another, tests)
    scheduler.schedule()
    assert another.tests == [2, 3]
    for number in another.tests:
        scheduler.mark_test_complete(another, number)
    assert scheduler.remove_node(another) is None


def test_durations_are_read_and_printed_alike() -> None:
    cases = [("tests/a.py", 4.6), ("tests/b.py", 7.9), ("tests/a.py", 30), ("tests/c.py", 100)]
    text = "".join(f'<testcase file="{path}" time="{seconds}"/>' for path, seconds in cases)
    lines = listed([f"<testsuite>{text}</testsuite>"])
    assert lines == " 100 tests/c.py\n  35 tests/a.py\n"
    assert durations(f"# a comment\n\n{lines}") == {"tests/c.py": 100, "tests/a.py": 35}


@pytest.mark.parametrize("path", durations(DURATIONS.read_text()))
def test_a_file_with_a_duration_exists(path: str) -> None:
    assert (ROOT / path).exists()
