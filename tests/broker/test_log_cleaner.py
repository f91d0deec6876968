"""Compaction in a whole broker, with a real worker process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.broker.harness import Harness, running

SMALL = {"log_cleaner_backoff_ms": "20", "log_index_interval_bytes": "200"}


def fill(harness: Harness, topic: str, count: int, keys: int = 5, size: int = 50) -> dict[bytes, bytes]:
    """Produces so many records over few keys; returns the last value of each."""
    last = {}
    for number in range(count):
        key, value = b"key-%d" % (number % keys), b"%d " % number + b"x" * size
        harness.produce(topic, (key, value))
        last[key] = value
    return last


def contents(harness: Harness, topic: str) -> dict[bytes, bytes | None]:
    return {record.key: record.value for record in harness.records(topic)}


@pytest.mark.slow
def test_a_compacted_topic_is_cleaned(tmp_path: Path) -> None:
    with running(tmp_path, **SMALL) as harness:
        harness.create_topic("table", cleanup_policy="compact", internal_segment_bytes="2000")
        last = fill(harness, "table", 200)
        log = harness.broker.logs.logs["table", 0]
        before = log.size_bytes
        harness.until(lambda: log.cleaned_offset is not None and not log.dirty_range(0).is_due(0.5))
        assert log.size_bytes < before / 4
        assert contents(harness, "table") == last
        assert log.log_end_offset == 200
        assert b"table 0" in (tmp_path / "cleaner-offset-checkpoint").read_bytes()
