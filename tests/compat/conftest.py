"""Foreign clients against a running broker, and the list of the tests that must pass.

`allow.txt` names the tests that pass, by node id from this folder. A listed test that is gone, that skips, or that
something keeps from running fails the run, so a client that once worked stays covered. A test that
is left out on purpose, by -k, -m, by naming single tests or on another day, is not missed; nor is any test in a run
--against another broker.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.stuck import collect_clients
from tests.compat.records import WAIT_S, until
from tests.support.allow_list import PATH as ALLOW_LIST
from tests.support.allow_list import allowed

FOLDER = pathlib.Path(__file__).parent


def _allowed() -> set[str]:
    return allowed(ALLOW_LIST.read_text())


class AllowList:
    """Compares a run with allow.txt, for the selected files of this folder."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._expected: set[str] = set()
        self._passed: set[str] = set()
        self._missed: list[str] = []

    def _name(self, node_id: str) -> str | None:
        path, _, test = node_id.partition("::")
        full = self._config.rootpath / path
        return f"{full.name}::{test}" if full.parent == FOLDER else None

    def _asked_for(self, file: pathlib.Path) -> bool:
        places = [self._config.invocation_params.dir / argument for argument in self._config.args]
        return any(file.is_relative_to(place.resolve()) for place in places)

    @pytest.hookimpl(tryfirst=True)  # before -k and -m deselect tests
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        listed = {name for name in _allowed() if self._asked_for(FOLDER / name.partition("::")[0])}
        self._missed = sorted(listed - {self._name(item.nodeid) for item in items})
        if not self._config.option.collectonly:
            self._expected = listed

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._expected -= {self._name(item.nodeid) or "" for item in items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = self._name(report.nodeid)
        if name is not None and report.when == "call" and report.passed:
            self._passed.add(name)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not session.shouldstop and not session.shouldfail:
            self._missed = sorted({*self._missed, *(self._expected - self._passed)})
        if self._missed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._missed:
            terminalreporter.section("tests in tests/compat/allow.txt that did not pass", red=True)
            for name in self._missed:
                terminalreporter.write_line(name)
        new = sorted(self._passed - _allowed())
        if new:
            terminalreporter.section("tests that pass and are not in tests/compat/allow.txt yet")
            for name in new:
                terminalreporter.write_line(name)


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--against"):
        config.pluginmanager.register(AllowList(config), "compat-allow-list")


@pytest.fixture(autouse=True)
def clients_end_with_their_test() -> Iterator[None]:
    """A client of a test is not destroyed within a later one, which it could stop."""
    yield
    collect_clients()


@pytest.fixture(scope="session")
def unique() -> Callable[[str], str]:
    """Makes names that no other test and no earlier run used."""
    numbers = itertools.count()
    run = f"{os.getpid():x}{time.time_ns() // 1_000_000 % 10**9:x}"
    return lambda prefix: f"{prefix}-{run}-{next(numbers)}"


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    """A client for preparations and checks; administration itself is tested with each client's own."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@pytest.fixture(scope="session")
def new_topic(admin: AdminClient, unique: Callable[[str], str]) -> Callable[..., str]:
    """new_topic(partitions=1, configs={}) creates a topic and returns its name."""

    def create(partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        name = unique("compat")
        topic = NewTopic(name, partitions, 1, config=dict(configs or {}))
        admin.create_topics([topic])[name].result(WAIT_S)
        # Apache Kafka's brokers learn of a topic a little after its creation.
        until(lambda: len(admin.list_topics(name, WAIT_S).topics[name].partitions) == partitions, "the new topic")
        return name

    return create
