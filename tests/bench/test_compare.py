"""The comparison with Apache Kafka: the command works at the smallest size, and reports its figures as it should."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from tests.bench import compare
from tests.bench.compare import Values, draw, table
from tests.bench.loads import LARGE, LOADS, chosen
from tests.support.kafka import kafka_jars

VALUES = [
    Values("produce, MB/s", True, [10.0, 20.0, 30.0], [10.0, 10.0, 10.0]),
    Values("end to end, ms", False, [2.0, 2.0, 2.0], [2.0, 4.0, 1.0]),
    Values("too small to be told, s", False, [0.0], [1.0]),
]


def test_ratios_are_those_of_each_round() -> None:
    assert [one.ratios for one in VALUES] == [[1.0, 2.0, 3.0], [1.0, 2.0, 0.5], []]
    lines = table(VALUES).splitlines()
    assert lines[1].split() == ["produce,", "MB/s", "20.00", "10.00", "2.00", "1.00", "-", "3.00"]
    assert lines[2].split() == ["end", "to", "end,", "ms", "2.00", "2.00", "1.00", "0.50", "-", "2.00"]
    assert lines[3].endswith("-")
    drawn = draw(VALUES, 3, datetime.date(2026, 11, 28))
    assert drawn.count("<rect") == 2
    assert "make bench on 2026-11-28: 3 rounds" in drawn


def test_a_load_brings_those_that_it_needs() -> None:
    assert chosen([]) == LOADS
    assert [load.figure for load in chosen(["consume 1000"])] == [LARGE, "consume 1000 B records, MB/s"]
    assert chosen(["nothing of the kind"]) == []


@pytest.mark.jvm
@pytest.mark.very_slow
@pytest.mark.by_day(1, group="commands of the benchmarks")
def test_the_command_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kafka_jars()
    drawn = tmp_path / "ratios.svg"
    words = [
        "--rounds",
        "1",
        "--warm-up",
        "0",
        "--share",
        "0.0005",
        "--only",
        "100 B",
        "--only",
        "(1 at a time), 1/s",
        "--only",
        "offset commits (1 in flight)",
        "--only",
        "classic",
        "--only",
        "restart",
        "--only",
        "tls: connections opened",
        "--chart",
        str(drawn),
    ]
    code = compare.main(words)
    told = capsys.readouterr().out
    assert code == ("MISSED" in told)
    for figure in (
        "produce 100 B records, MB/s",
        "transactions (1 at a time), 1/s",
        "offset commits (1 in flight), 1/s",
        "3,000 members join, classic, s",
        "their heartbeats, classic, % of a core",
        compare.RESTART,
        "longest stall, gregor, restart 1",
        "tls: connections opened (500), s",
        compare.START,
        compare.MEMORY,
        "longest stall, gregor, all rounds, TLS",
    ):
        assert figure in told
    # The processor time of a second of heartbeats may be less than the system measures.
    assert drawn.read_text().count("<rect") in (8, 9, 10)
