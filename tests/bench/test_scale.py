"""The scale bench at a tenth of its size, each figure with its share of the limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import scale
from tests.bench.figures import Figure

pytestmark = pytest.mark.very_slow

BUSY_MACHINE = 3
"""Tests run beside others: what is measured in time may be so many times its limit."""


def missed(figures: Iterator[Figure]) -> list[str]:
    found = []
    for figure in figures:
        leeway = 1 if figure.unit in ("MB", "fd") else BUSY_MACHINE
        if figure.limit is not None and figure.value > figure.limit * leeway:
            found.append(str(figure))
    return found


def test_partitions(tmp_path: Path) -> None:
    assert missed(scale.partitions(tmp_path, 1000, requests=500, idle_s=3)) == []


def test_connections(tmp_path: Path) -> None:
    assert missed(scale.connections(tmp_path, 500)) == []


def test_others_are_served(tmp_path: Path) -> None:
    assert missed(scale.others_served(tmp_path, 20)) == []


def test_a_figure_that_is_missed_says_so() -> None:
    assert Figure("stall", 11, "ms", 10).missed
    assert "MISSED" in str(Figure("stall", 11, "ms", 10))
    assert not Figure("stall", 10, "ms", 10).missed
    assert not Figure("stall", 11, "ms").missed
