"""A consume-transform-produce loop whose clients and brokers are killed in every phase of a transaction.

`--rounds N` plays N rounds in each test: seven have each kind of victim and each phase, 30 have each victim in each
phase. `--brokers kafka` plays them with Apache Kafka 3.9.1 instead of gregor.
"""

from __future__ import annotations

import pathlib

import pytest

from tests.compat.transaction_faults import CLUSTER_SETTINGS, SINGLE_SETTINGS, OneBroker, clustered, play
from tests.support.mixed_cluster import KAFKA
from tests.support.processes import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--brokers"))


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--rounds"))


def test_one_broker(tmp_path: pathlib.Path, kind: str, rounds: int) -> None:
    """The transactional protocol is the new one (transaction.version 2) with gregor's own metadata store."""
    victims = ("client", "broker")
    if kind == KAFKA:
        with clustered(tmp_path, [KAFKA], SINGLE_SETTINGS) as brokers:
            play(brokers, tmp_path / "loop", victims, rounds, 1)
    else:
        with BrokerProcess(tmp_path / "broker") as broker:
            play(OneBroker(broker), tmp_path / "loop", victims, rounds, 1)


def test_three_brokers(tmp_path: pathlib.Path, kind: str, rounds: int) -> None:
    victims = ("client", "coordinator", "leader", "group coordinator", "frozen coordinator", "frozen leader")
    with clustered(tmp_path, [kind] * 3, CLUSTER_SETTINGS) as brokers:
        play(brokers, tmp_path / "loop", victims, rounds, 3)
