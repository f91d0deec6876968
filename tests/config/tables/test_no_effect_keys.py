"""The file of settings without effect; that its rows are Apache Kafka's is tested with those of `broker_keys`."""

from __future__ import annotations

from gregor.config.broker import BrokerConfig
from gregor.config.tables.no_effect_keys import NULL, keys_without_effect
from tests.support.processes import ROOT

FILE = ROOT / "config" / "tables" / "no_effect.tsv"
ROWS = [line.split("\t") for line in FILE.read_text().splitlines()[1:]]


def test_each_row_is_complete_and_stands_in_order() -> None:
    assert {len(row) for row in ROWS} == {10}
    keys = [row[0] for row in ROWS]
    assert keys == sorted(set(keys))
    assert list(keys_without_effect()) == keys
    assert [row[0] for row in ROWS if not (row[1] and row[6] and row[8] and row[9])] == []


def test_defaults_are_written_as_they_are_described() -> None:
    written = {row[0]: None if row[2] == NULL else row[2] for row in ROWS}
    assert {key: row.format(row.default) for key, row in keys_without_effect().items()} == written


def test_a_broker_that_sets_none_of_them_does_not_read_the_file() -> None:
    keys_without_effect.cache_clear()
    BrokerConfig({"listeners": "PLAINTEXT://localhost:9092", "zookeeper.connect": "", "num.io.threads": "9"})
    assert keys_without_effect.cache_info().currsize == 0
    BrokerConfig({"process.roles": "broker,controller"})
    assert keys_without_effect.cache_info().currsize == 1
