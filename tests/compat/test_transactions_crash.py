"""A consume-transform-produce loop whose clients and brokers are killed in every phase of a transaction.

`--transaction-rounds N` plays N rounds, shared among the tests here: 20 have each kind of victim and each phase in each
test, 90 each victim in each phase. `--brokers kafka` plays them with Apache Kafka 3.9.1 instead of gregor.
"""

from __future__ import annotations

import pathlib

import pytest

from tests.compat.transaction_faults import (
    CLUSTER_SETTINGS,
    COPIERS,
    NEWER_COPIERS,
    SINGLE_SETTINGS,
    OneBroker,
    clustered,
    play,
)
from tests.compat.transaction_version import NEW, OLD, finalise_new_protocol
from tests.support.mixed_cluster import KAFKA
from tests.support.processes import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

VICTIMS = ("client", "coordinator", "leader", "group coordinator", "frozen coordinator", "frozen leader")
SHARES = 3
"""Of one broker, and of three with each protocol."""


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--brokers"))


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--transaction-rounds"))


def test_one_broker(tmp_path: pathlib.Path, kind: str, rounds: int) -> None:
    """The transactional protocol is the new one (transaction.version 2) with gregor's own metadata store."""
    victims, share = ("client", "broker"), rounds // SHARES
    if kind == KAFKA:
        with clustered(tmp_path, [KAFKA], SINGLE_SETTINGS) as brokers:
            play(brokers, tmp_path / "loop", victims, share, 1)
    else:
        with BrokerProcess(tmp_path / "broker") as broker:
            play(OneBroker(broker), tmp_path / "loop", victims, share, 1, level=NEW)


@pytest.mark.parametrize("level", [OLD, NEW])
def test_three_brokers(tmp_path: pathlib.Path, kind: str, rounds: int, level: int) -> None:
    """With ZooKeeper the operator switches the new protocol on."""
    if kind == KAFKA and level == NEW:
        pytest.skip("Apache Kafka 3.9.1 has no transaction.version 2")
    share = (rounds + SHARES - 1) // SHARES if level == OLD else (rounds + 1) // SHARES
    with clustered(tmp_path, [kind] * 3, CLUSTER_SETTINGS) as brokers:
        if level == NEW:
            finalise_new_protocol(brokers.bootstrap)
        play(brokers, tmp_path / "loop", VICTIMS, share, 3, NEWER_COPIERS if level == NEW else COPIERS, level)
