"""Fixtures that several packages' tests share."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.by_day import Marked, left_out
from tests.support.processes import BrokerProcess
from tests.support.sampling import of_the_day

if TYPE_CHECKING:
    from tests.support.certificates import Certificates

OF_THE_SESSION = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
"""A transaction that has timed out is aborted soon, not ten seconds later."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--against",
        metavar="HOST:PORT",
        help="run the tests that use the `bootstrap` fixture against this broker (say, Apache Kafka) instead of gregor",
    )
    parser.addoption("--every-case", action="store_true", help="all cases where tests run some of them, by the day")
    parser.addoption(
        "--day",
        metavar="YYYY-MM-DD",
        default=datetime.date.today().isoformat(),
        help="run the cases of this day, not of today",
    )
    parser.addoption(
        "--one-in", type=int, default=1, metavar="N", help="run one in N files; days that follow each other run all"
    )
    parser.addoption("--left-out", metavar="FILE", help="write the tests that other days run into this file")
    parser.addoption("--rounds", type=int, default=7, help="rounds of faults in tests that kill clients and brokers")
    parser.addoption(
        "--transaction-rounds",
        type=int,
        default=20,
        help="rounds of faults under transactions, shared by the tests of tests/compat/test_transactions_crash.py",
    )
    parser.addoption(
        "--chaos-minutes", type=float, default=1.0, help="minutes of faults in tests/cluster/test_chaos.py"
    )
    parser.addoption(
        "--brokers",
        choices=("gregor", "kafka"),
        default="gregor",
        help="the brokers that tests of faults start: gregor, or Apache Kafka 3.9.1 for comparison",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let `--dist loadfile` begin with the long files."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.support.long_files import LongFilesFirst

    return LongFilesFirst(config, log)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One gregor broker for the whole session; tests on it use topic and group names of their own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), OF_THE_SESSION) as running:
        yield running


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests with the mark by_day, and with --one-in the files, that other days run."""
    if config.getoption("--every-case"):
        return
    day = day_of(config)
    files = list(dict.fromkeys(item.path for item in items))
    kept = set(of_the_day(files, -(-len(files) // config.getoption("--one-in")), day))
    found, names = [], {item.nodeid for item in items if item.path not in kept}
    for item in items:
        if (mark := item.get_closest_marker("by_day")) is not None:
            call = getattr(item, "callspec", None)
            found.append(Marked(item.nodeid, mark, call.params if call is not None else {}))
    names |= left_out(found, day)
    if (path := config.getoption("--left-out")) is not None:
        Path(path).write_text("".join(f"{name}\n" for name in sorted(names)))
    if names:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in names])
        items[:] = [item for item in items if item.nodeid not in names]


def day_of(config: pytest.Config) -> datetime.date:
    """Return the day whose cases the run has: one for all workers, and also after midnight."""
    return datetime.date.fromisoformat(config.getoption("--day"))


@pytest.fixture(scope="session")
def day(pytestconfig: pytest.Config) -> datetime.date:
    """The day whose cases the run has."""
    return day_of(pytestconfig)


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """HOST:PORT of the session's broker, or of the one that --against names."""
    against = request.config.getoption("--against")
    return str(against or request.getfixturevalue("broker").bootstrap)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of a server and of clients, made on first use."""
    from tests.support.certificates import Certificates

    return Certificates(tmp_path_factory.mktemp("certificates"))
