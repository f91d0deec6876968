"""The bench of clusters: it works at the smallest size, and reports its figures as it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import cluster, raw_load
from tests.bench.cluster import Figure, Values, table
from tests.bench.figures import create_topics
from tests.support.mixed_cluster import GREGOR, KAFKA
from tests.support.processes import BrokerProcess
from tests.support.wire import RawConnection


def test_ratios_are_those_of_each_round() -> None:
    def both(ours: list[float], theirs: list[float], more: bool, asked: float | None) -> dict[str, list[Figure]]:
        sides = {GREGOR: ours, KAFKA: theirs}
        return {kind: [Figure("", value, more, asked) for value in found] for kind, found in sides.items()}

    values: Values = {
        "batches, MB/s": both([10, 20, 30], [10, 10, 10], True, 1.2),
        "batches, MB/s\n  p99, ms": both([2, 2, 2], [2, 4, 1], False, 1.1),
        "failover, s": {GREGOR: [Figure("", 3.0)]},
    }
    _, batches, p99, failover = table(values).splitlines()
    assert batches.split() == ["batches,", "MB/s", "20.00", "10.00", "2.00", "1.00", "-", "3.00", ">=", "1.20"]
    assert p99.split() == ["p99,", "ms", "2.00", "2.00", "1.00", "0.50", "-", "2.00", ">=", "1.10,", "missed"]
    assert failover.split() == ["failover,", "s", "3.00", "-"]


def test_side_is_warm_when_two_passes_are_over_and_it_does_not_become_faster() -> None:
    def passes(*rates: float) -> int:
        left = list(rates)
        cluster.warm_up(lambda: raw_load.Found(round(left.pop(0)), 0, 1.0, []))
        return len(rates) - len(left)

    assert passes(100, 101, 0) == 2
    assert passes(100, 120, 140, 142, 0) == 4
    assert passes(*[100 * 1.1**number for number in range(20)]) == 5, "an upper limit"


@pytest.mark.slow
def test_a_load_counts_what_was_acknowledged(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with RawConnection(broker.port) as connection:
            create_topics(connection, ["load"], 3)
        found = raw_load.load(broker.port, "load", count=6, batch_bytes=30_000, window=4, seconds=0.2)
        assert found.requests == len(found.times_ms) > 24
        assert 0 < found.median_ms <= found.percentile_ms(0.99) <= found.times_ms[-1]
        logs = [path.stat().st_size for path in (tmp_path / "data").glob("load-*/*.log")]
        assert sum(logs) == found.size_bytes


@pytest.mark.by_day(1, group="commands of the benchmarks")
@pytest.mark.very_slow
@pytest.mark.jvm  # for ZooKeeper
def test_the_command_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster.main(["--rounds", "1", "--side", "gregor", "--seconds", "0.3", "--only", "load"]) == 0
    told = capsys.readouterr().out
    assert told.count("start to the first record") == 2
    for load in ("batches of 16 KB", "batches of 1 MB", "1 producer that waits", "64 producers that wait"):
        for state in ("cold", "warm"):
            assert told.count(f"{load}, {state}") == 2
