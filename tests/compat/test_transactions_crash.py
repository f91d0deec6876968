"""A consume-transform-produce loop whose clients and brokers are killed, frozen and cut off in every phase of a
transaction.

`--transaction-rounds N` plays N rounds, shared among the tests here: 20 have each kind of victim and each phase in each
test, 105 each victim in each phase. `--brokers kafka` plays them with Apache Kafka 3.9.1 instead of gregor.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import pytest

from tests.cluster import network
from tests.compat.transaction_hosts import GREGOR, run
from tests.compat.transaction_hosts import KAFKA as KAFKA_3_9
from tests.compat.transaction_version import NEW, OLD
from tests.support.kafka import kafka_jars
from tests.support.mixed_cluster import KAFKA

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

VICTIMS = ("client", "coordinator", "leader", "group coordinator", "frozen coordinator", "frozen leader", "cut")
SHARES = 3
"""Of one broker, and of three with each protocol."""


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--brokers"))


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--transaction-rounds"))


def play_on_hosts(
    folder: pathlib.Path, kind: str, brokers: int, level: int, rounds: int, victims: Sequence[str]
) -> None:
    if reason := network.missing():
        pytest.skip(reason)
    # On the hosts there is no way to fetch them.
    for version in ("1.1.1", "3.9.1", "4.3.1", "4.4.0"):
        kafka_jars(version)
    run(folder, KAFKA_3_9 if kind == KAFKA else GREGOR, brokers, level, rounds, victims)


def test_one_broker(tmp_path: pathlib.Path, kind: str, rounds: int) -> None:
    """The transactional protocol is the new one (transaction.version 2) with gregor's own metadata store."""
    level = OLD if kind == KAFKA else NEW
    play_on_hosts(tmp_path, kind, 1, level, rounds // SHARES, ("client", "broker", "cut"))


@pytest.mark.by_day(1)
@pytest.mark.parametrize("level", [OLD, NEW])
def test_three_brokers(tmp_path: pathlib.Path, kind: str, rounds: int, level: int) -> None:
    """With ZooKeeper the operator switches the new protocol on."""
    if kind == KAFKA and level == NEW:
        pytest.skip("Apache Kafka 3.9.1 has no transaction.version 2")
    share = (rounds + SHARES - 1) // SHARES if level == OLD else (rounds + 1) // SHARES
    play_on_hosts(tmp_path, kind, 3, level, share, VICTIMS)
