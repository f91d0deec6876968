"""A client whose library has locked itself up is noticed, ended and replaced."""

from __future__ import annotations

import pathlib
import sys
import threading

import pytest

from tests.cluster.clients import Client
from tests.cluster.stuck import (
    LOCKED_UP_S,
    MAIN_THREAD,
    STUCK_EXIT,
    RevivedConsumer,
    Watch,
    collect_clients,
    main_threads,
    switches_of_main,
)
from tests.support.gregor_cluster import until

Switches = dict[str, str] | None


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        ([{"7": "10"}, {"7": "11"}, {"7": "11"}], [False, False, True]),
        ([{"7": "10", "8": "3"}, {"7": "11", "8": "3"}], [False, True]),
        ([{"7": "10"}, None, {"7": "10"}], [False, False, False]),
        ([{"7": "10"}, {"9": "10"}], [False, False]),
        ([{}, {}], [False, False]),
    ],
    ids=["one", "one of two", "awake meanwhile", "another thread", "no library"],
)
def test_main_thread_that_does_not_wake_up_is_locked_up(observed: list[Switches], expected: list[bool]) -> None:
    watch = Watch(iter(observed).__next__)
    assert [watch.is_locked_up() for _ in observed] == expected


def task(tasks: pathlib.Path, name: str, command: str, state: str) -> None:
    folder = tasks / name
    folder.mkdir()
    (folder / "comm").write_text(f"{command}\n")
    (folder / "status").write_text(f"Name:\t{command}\nState:\t{state}\nvoluntary_ctxt_switches:\t{name}0\n")


def test_only_main_threads_of_the_library_count(tmp_path: pathlib.Path) -> None:
    task(tmp_path, "4", "python", "R (running)")
    task(tmp_path, "5", MAIN_THREAD, "S (sleeping)")
    assert switches_of_main(tmp_path) == {"5": "50"}
    task(tmp_path, "6", MAIN_THREAD, "R (running)")
    assert switches_of_main(tmp_path) is None
    assert switches_of_main(tmp_path, only={"5"}) == {"5": "50"}
    assert main_threads(tmp_path) == {"5", "6"}


def test_consumer_that_is_locked_up_is_replaced_by_another() -> None:
    class Fake:
        def __init__(self, number: int) -> None:
            self.number = number

        def consume(self, count: int, timeout_s: float) -> list[int]:
            return [self.number]

        def close(self) -> None:
            closed.append(self.number)

    closed: list[int] = []
    made: list[Fake] = []
    now_s = [0.0]

    def make() -> Fake:
        made.append(Fake(len(made)))
        return made[-1]

    observed = iter([{"7": "1"}, {"7": "1"}, {"8": "1"}, {"8": "2"}])
    consumer = RevivedConsumer(make, lambda own: Watch(observed.__next__), lambda: now_s[0])
    found = []
    for _ in range(5):
        found += consumer.consume(1, 0)
        now_s[0] += LOCKED_UP_S
    consumer.close()
    assert (found, consumer.replaced, closed) == ([0, 0, 1, 1, 1], 1, [1])


def test_consumer_whose_call_does_not_return_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        def __init__(self, lock: threading.Lock) -> None:
            self.lock = lock

        def consume(self, count: int, timeout_s: float) -> list[str]:
            with self.lock:
                return ["record"]

        def close(self) -> None:
            pass

    monkeypatch.setattr("tests.cluster.stuck.LOCKED_UP_S", 0.02)
    held = threading.Lock()
    made = iter([Fake(held), Fake(threading.Lock())])
    with held:
        consumer = RevivedConsumer(lambda: next(made), lambda own: Watch(lambda: None))
        assert (consumer.consume(1, 0), consumer.replaced) == ([], 1)
        # Time enough for a busy machine to begin a thread.
        assert (consumer.consume(1, 30), consumer.replaced) == (["record"], 1)


def test_a_collection_that_does_not_end_is_left_behind_with_its_stack(capfd: pytest.CaptureFixture[str]) -> None:
    held = threading.Lock()

    def collect_slowly() -> None:
        with held:
            pass

    with held:
        assert not collect_clients(collect_slowly, 0.02)
    assert "in collect_slowly" in capfd.readouterr().err
    assert collect_clients()


def test_client_that_ended_so_is_replaced_and_counted(tmp_path: pathlib.Path) -> None:
    program = "import os, sys; os.path.exists(sys.argv[1]) or (open(sys.argv[1], 'w'), os._exit(int(sys.argv[2])))"
    client = Client(tmp_path, "client", [sys.executable, "-c", program, str(tmp_path / "begun"), str(STUCK_EXIT)])
    until(lambda: not client.running, "the end of the first process")
    client.replace_stuck()
    client.ended()
    client.replace_stuck()
    assert client.stuck == 1
    assert len(client.events) == 2
