"""The scale bench at a tenth of its size, each figure with its share of the limit."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import figures, scale
from tests.bench.figures import Figure
from tests.support.processes import BrokerProcess
from tests.support.stolen_time import StolenTime

pytestmark = pytest.mark.very_slow

BUSY_MACHINE = 10
"""Tests run beside others, and on slower machines: a figure in wall time may be this many times its limit."""
SLOW_MACHINE = 3
"""The same of processor time."""
STALLED_MACHINE = 50
"""The same of a stall: its part on the processor is judged."""
EXACT_UNITS = ("MB", "fd")


def missed(measured: Iterator[Figure]) -> list[str]:
    found = []
    for figure in measured:
        leeway = BUSY_MACHINE
        if figure.unit in EXACT_UNITS:
            leeway = 1
        elif "on the processor" in figure.name or figure.unit == "us":
            leeway = SLOW_MACHINE
        elif "stall" in figure.name:
            leeway = STALLED_MACHINE
        if figure.limit is not None and figure.value > figure.limit * leeway:
            found.append(str(figure))
    return found


def test_processor_time_below_a_tick_of_the_kernel_is_counted() -> None:
    before_s, begin_s = figures.processor_s(os.getpid()), time.process_time()
    while time.process_time() - begin_s < 0.002:
        pass
    assert 0.002 <= figures.processor_s(os.getpid()) - before_s < 0.1


def test_partitions(tmp_path: Path) -> None:
    assert missed(scale.partitions(tmp_path, 1000, requests=500, idle_s=3)) == []


def test_connections(tmp_path: Path) -> None:
    assert missed(scale.connections(tmp_path, 500)) == []


def test_counters() -> None:
    assert missed(scale.counters()) == []


def test_scrapes(tmp_path: Path) -> None:
    assert missed(scale.scrapes(tmp_path / "few", 10, 100, count=10)) == []
    assert missed(scale.scrapes(tmp_path / "many", 1000, 1, count=10)) == []


def test_scrapes_with_a_group_behind_show_its_lag(tmp_path: Path) -> None:
    """The share of a core is close to its limit, so only `make bench-scale` holds it against that."""
    plain = {figure.name: figure.value for figure in scale.scrapes(tmp_path / "plain", 2, 100, count=2)}
    behind = {figure.name: figure.value for figure in scale.scrapes(tmp_path / "lag", 2, 100, count=2, lagging=True)}
    assert "scrape of 2 topics with 200 lagging partitions, each 5 s" in behind
    assert behind["  size"] > plain["  size"] + 200 * 100 / 1e6  # lines for each partition with the group's name


def test_others_are_served(tmp_path: Path) -> None:
    assert missed(scale.others_served(tmp_path, 20)) == []


@pytest.mark.parametrize(("stolen_ticks", "limit_ms"), [(0, 10), (9, 10), (10, None)])
def test_wall_time_of_a_stall_is_a_limit_where_nothing_was_stolen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stolen_ticks: int, limit_ms: float | None
) -> None:
    monkeypatch.setattr(figures, "stalls", lambda broker: {"longest_ms": 12.0, "longest_busy_ms": 9.0})
    stat = tmp_path / "stat"
    stat.write_text("cpu 0 0 0 0 0 0 0 0\n")
    stolen = StolenTime(str(stat))
    stat.write_text(f"cpu {1000 - stolen_ticks} 0 0 0 0 0 0 {stolen_ticks}\n")
    wall, busy, share = figures.stall_figures(BrokerProcess(tmp_path), stolen, "all of it")
    assert (wall.limit, busy.limit, share.value) == (limit_ms, 10, pytest.approx(stolen_ticks / 10))
    assert (wall.missed, busy.missed) == (limit_ms is not None, False)


def test_a_figure_that_is_missed_says_so() -> None:
    assert Figure("stall", 11, "ms", 10).missed
    assert "MISSED" in str(Figure("stall", 11, "ms", 10))
    assert not Figure("stall", 10, "ms", 10).missed
    assert not Figure("stall", 11, "ms").missed
