"""Log.prefetching: what retention and compaction read of old segments is fetched on a thread before they read it."""

from __future__ import annotations

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
            log.offsets.restore_high_watermark(log.log_end_offset)
    return manager


def restarted(files: MemoryFiles) -> tuple[LogManager, Log]:
    """Start again, with no ages known yet, and nothing in memory."""
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


def fetched(work: Steps[None]) -> int:
    """Make the calls for a thread, and count them."""
    calls = 0
    for call in work:
        if call is not None:
            call()
            calls += 1
    return calls


def test_retention_waits_for_no_read_once_ages_were_fetched() -> None:
    files = MemoryFiles()
    manager, log = restarted(files)
    with pytest.raises(NotCached):
        log.retention.due_count(NOW, waits_for_disk=False)
    assert fetched(manager.prefetching_ages(NOW)) > 0
    count = log.retention.due_count(NOW, waits_for_disk=False)
    assert count == sum(segment.largest_timestamp_ms < NOW - 5000 for segment in log.segments) > 5
    files.evict()
    waits = files.calls["wait"]
    list(manager.retention_pass(NOW))
    assert files.calls["wait"] == waits
    assert log.log_start_offset > 10
    assert fetched(manager.prefetching_ages(NOW)) == 0, "ages are remembered"


def test_compaction_waits_for_no_read_once_ages_were_fetched() -> None:
    files = MemoryFiles()
    _, log = restarted(files)
    with pytest.raises(NotCached):
        log.dirty_range(NOW, waits_for_disk=False)
    assert fetched(log.prefetching(lambda: log.dirty_range(NOW, waits_for_disk=False))) > 0
    files.evict()
    dirty = log.dirty_range(NOW, waits_for_disk=False)
    assert dirty == log.dirty_range(NOW)


def test_an_error_is_left_to_the_read_that_follows() -> None:
    files = MemoryFiles()
    _, log = restarted(files)
    files.break_folder(log.directory, OSError(5, "a bad block"))
    assert fetched(log.prefetching(lambda: log.dirty_range(NOW, waits_for_disk=False))) == 0


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("size", [50, 200_000])
def test_the_page_that_is_appended_to_first_is_in_memory_after_a_start(clean: bool, size: int) -> None:
    """Otherwise the first append would wait for it. (The end of a large batch is not read by a start.)"""
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
    files.open(path).read(1, end - 1, waits_for_disk=False)
