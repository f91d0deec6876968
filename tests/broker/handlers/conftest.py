"""A broker that requests metrics of its clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.harness import Harness


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """A broker with a listener for metrics."""
    folder = tmp_path_factory.mktemp("telemetry")
    one = Harness(folder, gregor_metrics_listener="0", telemetry_max_bytes="4000").start()
    yield one
    one.stop()
