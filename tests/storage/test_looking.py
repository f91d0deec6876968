"""Log.looking: what retention and compaction ask of old segments is fetched on a thread before they ask."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gregor.config.broker import BrokerConfig
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.turns import Steps
from gregor.storage.folders.manager import LogManager
from gregor.storage.fs.cached_reads import NotCached
from gregor.storage.log.log import Log
from tests.storage.logs import NOW_MS, batch, log_config
from tests.storage.memory_files import MemoryFiles

CONFIG = log_config(
    segment_bytes=200,
    index_interval_bytes=0,
    retention_ms=5000,
    min_compaction_lag_ms=4000,
    max_compaction_lag_ms=8000,
    cleanup_policy=frozenset(["compact", "delete"]),
)
NOW = NOW_MS + 20_000


def loaded(files: MemoryFiles) -> LogManager:
    files.make_directory("/data")
    manager = LogManager(BrokerConfig({"log.dirs": "/data"}), files, lambda: NOW)
    for log in manager.load(lambda topic: CONFIG):
        if log is not None:
            log.restore_high_watermark(log.log_end_offset)
    return manager


def restarted(files: MemoryFiles) -> tuple[LogManager, Log]:
    """A start that knows no ages yet, and nothing in memory."""
    manager = loaded(files)
    log = manager.get_or_create("t", 0, ZERO_UUID, CONFIG)
    for second in range(20):
        log.append_as_leader(batch(1, timestamp_ms=NOW_MS + second * 1000), 0, NOW_MS)
    manager.close_all()
    manager = loaded(files)
    files.evict()
    log = manager.logs["t", 0]
    assert log.segments_count > 8
    return manager, log


def gone_through(work: Steps[None]) -> int:
    """How many calls it had for a thread."""
    calls = 0
    for call in work:
        if call is not None:
            call()
            calls += 1
    return calls


def without_waiting(files: MemoryFiles, ask: Callable[[], object]) -> object:
    files.waits_for_disk = False
    try:
        return ask()
    finally:
        files.waits_for_disk = True


def test_retention_reads_nothing_once_ages_were_looked_at() -> None:
    files = MemoryFiles()
    manager, log = restarted(files)
    with pytest.raises(NotCached):
        without_waiting(files, lambda: log.old_segments_count(NOW))
    assert gone_through(manager.looking_at_ages(NOW)) > 0
    count = without_waiting(files, lambda: log.old_segments_count(NOW))
    assert count == sum(segment.largest_timestamp_ms < NOW - 5000 for segment in log.segments) > 5
    files.evict()
    without_waiting(files, lambda: list(manager.retention_pass(NOW)))
    assert log.log_start_offset > 10
    assert gone_through(manager.looking_at_ages(NOW)) == 0, "ages are remembered"


def test_so_does_compaction() -> None:
    files = MemoryFiles()
    _, log = restarted(files)
    with pytest.raises(NotCached):
        without_waiting(files, lambda: log.dirty_range(NOW))
    assert gone_through(log.looking(lambda: log.dirty_range(NOW))) > 0
    files.evict()
    dirty = without_waiting(files, lambda: log.dirty_range(NOW))
    assert dirty == log.dirty_range(NOW)


def test_what_is_wrong_is_left_to_who_looks_next() -> None:
    files = MemoryFiles()
    _, log = restarted(files)
    files.break_folder(log.directory, OSError(5, "a bad block"))
    assert gone_through(log.looking(lambda: log.dirty_range(NOW))) == 0


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("size", [50, 200_000])
def test_the_page_that_is_appended_to_first_is_in_memory_after_a_start(clean: bool, size: int) -> None:
    """Else the first append would wait for it. (The batch may be so large that nobody looked at its end.)"""
    files = MemoryFiles()
    manager = loaded(files)
    log = manager.get_or_create("t", 0, ZERO_UUID, log_config())
    log.append_as_leader(batch(1), 0, NOW_MS)
    log.append_as_leader(batch(1, size=size), 0, NOW_MS)
    path, end = log.segments[-1].log.path, log.size_bytes
    assert end % 4096
    if clean:
        manager.close_all()
    files.evict()
    loaded(files)
    without_waiting(files, lambda: files.open(path).read(1, end - 1))
