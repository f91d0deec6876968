"""The lag of the clients that fetch from brokers, as `gregor clients` reads it from their data folders."""

from __future__ import annotations

from collections.abc import Iterable

from gregor.broker.cli.upkeep import exchange
from tests.support.processes import BrokerProcess


def largest_lags(brokers: Iterable[BrokerProcess], topic: str) -> dict[int, int]:
    """Return by partition the lag of the client that is furthest behind; without partitions that none has fetched."""
    found: dict[int, int] = {}
    for broker in brokers:
        place = {"data_dir": str(broker.folder / "data"), "config_file": None}
        for position in exchange(place, {"command": "clients"}):
            if position["topic"] == topic:
                partition = position["partition"]
                found[partition] = max(found.get(partition, 0), position["lag"])
    return found
