"""`pytest tests/simulation --seed N` runs that seed alone, and shows what happened."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="run the simulated cluster with this seed alone")
