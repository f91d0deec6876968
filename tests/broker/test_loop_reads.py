"""Jobs that read old segments read on the event loop only data in memory; threads read everything else."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from gregor.storage.fs.files import OsFile
from tests.broker.harness import Harness, running

SETTINGS = {
    "log_cleaner_backoff_ms": "3600000",
    "log_retention_check_interval_ms": "3600000",
    "log_initial_task_delay_ms": "3600000",
}


@pytest.fixture
def waiting_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of files that the loop read and would have waited for."""
    found: list[str] = []
    read = OsFile.read

    def noted(file: OsFile, size_bytes: int, position: int, waits_for_disk: bool = True) -> bytes:
        if waits_for_disk and threading.current_thread() is threading.main_thread():
            found.append(file.path.rpartition("/")[2])
        return read(file, size_bytes, position, waits_for_disk)

    monkeypatch.setattr(OsFile, "read", noted)
    return found


def test_retention_and_compaction_wait_for_no_read(tmp_path: Path, waiting_reads: list[str]) -> None:
    with running(tmp_path) as harness:
        for name, policy in (("events", "delete"), ("table", "compact")):
            lags = {"min_compaction_lag_ms": "3600000", "max_compaction_lag_ms": "7200000"}
            harness.create_topic(name, cleanup_policy=policy, internal_segment_bytes="1000", **lags)
            for number in range(20):
                harness.produce(name, (b"key-%d" % number, bytes(200)))  # type: ignore[arg-type]
    with running(tmp_path, **SETTINGS) as harness:
        assert all(harness.broker.logs.logs[name, 0].segments_count > 3 for name in ("events", "table"))
        waiting_reads.clear()  # a start may wait
        harness.run(harness.node.maintenance.retain())
        harness.run(harness.node.cleaner.dirtiest())
        assert waiting_reads == []
    for order in ("compact", "retention"):
        with running(tmp_path, **SETTINGS) as harness:
            waiting_reads.clear()
            assert answers(harness, order)
            assert waiting_reads == []


def answers(harness: Harness, command: str) -> list[dict[str, Any]]:
    async def carry_out() -> list[dict[str, Any]]:
        return [answer async for answer in harness.node.control.carry_out({"command": command, "explain": True})]

    return harness.run(carry_out())
