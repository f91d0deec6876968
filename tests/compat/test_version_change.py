"""The data folder of a single broker of an earlier gregor serves this one, and that one again, without a loss."""

from __future__ import annotations

import pathlib
import struct

import pytest
from confluent_kafka import Producer

from tests.compat.cluster_load import commit, committed, read_numbers
from tests.support.earlier_gregor import EarlierGregor
from tests.support.processes import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.very_slow]

TOPIC = "load"
GROUP = "group"
COUNT = 500


def append(bootstrap: str, numbers: range) -> None:
    """Produce these numbers and wait until all are acknowledged."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce(
            TOPIC,
            struct.pack(">q", number),
            partition=0,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert failures == []


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_data_folder_changes_its_version_and_back(tmp_path: pathlib.Path, killed: bool) -> None:
    for turn, kind in enumerate((EarlierGregor, BrokerProcess, EarlierGregor)):
        broker = kind(tmp_path / "broker")
        with broker:
            if turn:
                assert committed(broker.bootstrap, GROUP, TOPIC) == turn
            append(broker.bootstrap, range(turn * COUNT, (turn + 1) * COUNT))
            assert read_numbers(broker.bootstrap, TOPIC, 1) == [[(each, each) for each in range((turn + 1) * COUNT)]]
            commit(broker.bootstrap, GROUP, TOPIC, turn + 1)
            if killed:
                broker.kill()
