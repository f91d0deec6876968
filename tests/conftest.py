"""Fixtures that several packages' tests share."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

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
    """Of the tests of a file that are marked by_day(COUNT), leave so many; other ones on other days."""
    if config.getoption("--every-case"):
        return
    by_file: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("by_day") is not None:
            by_file.setdefault(item.location[0], []).append(item)
    left_out: list[pytest.Item] = []
    for found in by_file.values():
        mark = found[0].get_closest_marker("by_day")
        assert mark is not None
        kept = of_the_day(found, min(mark.args[0], len(found)), datetime.date.today())
        left_out += [item for item in found if item not in kept]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


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
