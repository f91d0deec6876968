"""The sentences for operators, each in its situation."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.broker.admin_socket.explain import explain_compaction, explain_retention
from gregor.broker.units import duration, size
from gregor.protocol.records.batch import build_batch
from gregor.storage.log.log import Log
from tests.storage.logs import NOW_MS, open_log
from tests.storage.memory_files import MemoryFiles

DAY_MS = 86_400_000
COMPACT = frozenset(["compact"])


def log_of(batches: int = 4, per_segment: int = 1, **settings: Any) -> Log:
    log = open_log(MemoryFiles(), **{"cleanup_policy": COMPACT, **settings})
    for number in range(batches):
        log.append_as_leader(build_batch([(b"key", b"v" * 105)], timestamp_ms=NOW_MS + number), 1, NOW_MS)
        if (number + 1) % per_segment == 0:
            log.roll(NOW_MS)
    log.offsets.restore_high_watermark(log.log_end_offset)
    return log


def compaction(log: Log, now_ms: int = NOW_MS, **changes: Any) -> tuple[str, str]:
    arguments = {"next_check_ms": now_ms + 9000, "enabled": True, "running": False, "trouble": None, **changes}
    return explain_compaction(log, log.dirty_range(now_ms), now_ms=now_ms, **arguments)


def retention(log: Log, now_ms: int = NOW_MS) -> tuple[str, str]:
    return explain_retention(log, now_ms=now_ms, next_check_ms=now_ms + 60_000)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"), (999, "999 ms"), (1000, "1 s"), (61_000, "1 min 1 s"), (3_600_000, "1 h"), (3_601_000, "1 h"),
        (DAY_MS + 3_600_000, "1 d 1 h"), (7 * DAY_MS, "7 d"),
    ],
)  # fmt: skip
def test_durations(ms: int, text: str) -> None:
    assert duration(ms) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (12_345_678, "12.3 MB"), (10**10, "10.0 GB")]
)
def test_sizes(size_bytes: int, text: str) -> None:
    assert size(size_bytes) == text


def test_a_log_that_is_due() -> None:
    when, why = compaction(log_of())
    assert when == "in at most 9 s"
    assert why.startswith("712 B of 712 B that may be compacted are dirty, a ratio of 1.00; it is due above 0.5")


def test_an_overdue_log_says_so() -> None:
    log = log_of(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    when, why = compaction(log, NOW_MS + 61_000)
    assert when == "in at most 9 s"
    assert why.startswith("max.compaction.lag.ms was exceeded 1 min ago; ")


def test_a_log_that_is_not_dirty_enough() -> None:
    log = log_of(6)
    log.offsets.mark_cleaned_to(4)
    when, why = compaction(log)
    assert when == "when 356 B more are dirty"
    assert "a ratio of 0.33" in why
    assert why.endswith("the active segment is never compacted and is empty")


def test_a_log_that_only_max_lag_can_make_due() -> None:
    log = log_of(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=DAY_MS)
    assert compaction(log)[0] == "when a dirty record exceeds max.compaction.lag.ms"
    log = log_of(min_cleanable_dirty_ratio=1.0)
    assert compaction(log)[0] == "when it is ordered"


def test_the_active_segment_and_when_it_ends() -> None:
    log = log_of(3, per_segment=2, segment_bytes=10_000, segment_ms=DAY_MS)
    log.offsets.mark_cleaned_to(2)
    _, why = compaction(log)
    assert (
        "the active segment is never compacted: it holds 178 B and ends at 10.0 KB or with the first record after"
        in why
    )
    assert "with the next record" in compaction(log, NOW_MS + 2 * DAY_MS)[1]


def test_what_may_not_be_compacted_yet() -> None:
    log = log_of(min_compaction_lag_ms=5000)
    when, why = compaction(log, NOW_MS + 1000)
    assert when == "when it is old enough"
    assert "younger than min.compaction.lag.ms: the segment at offset 0 for another 4 s" in why
    log = log_of()
    log.offsets.restore_high_watermark(0)
    assert compaction(log)[0] == "when it is committed"
    assert "not on all replicas in sync, or its transaction is open: offset 0" in compaction(log)[1]


def test_running_failed_and_switched_off() -> None:
    log = log_of()
    assert compaction(log, running=True) == ("now", "a worker is at it")
    assert compaction(log, trouble="wrong checksum") == (
        "when it is ordered",
        "the last attempt failed: wrong checksum",
    )
    assert "log.cleaner.enable" in compaction(log, enabled=False)[1]


def test_an_empty_log() -> None:
    assert compaction(log_of(0)) == (
        "when the active segment has ended",
        "nothing may be compacted yet: the active segment is never compacted and is empty",
    )
    assert retention(log_of(0, cleanup_policy=frozenset(["delete"])))[0] == "when there is something"


def test_retention_by_age() -> None:
    log = log_of(cleanup_policy=frozenset(["delete"]), retention_ms=DAY_MS)
    when, why = retention(log, NOW_MS + 3_600_000)
    assert when == "in 23 h"
    assert why.startswith(
        "the latest record of the oldest segment (178 B from offset 0) is 1 h old, retention.ms allows 1 d"
    )
    assert why.endswith("retention.bytes sets no limit")
    assert retention(log, NOW_MS + DAY_MS + 1)[0] == "in at most 1 min"


def test_retention_by_size() -> None:
    log = log_of(cleanup_policy=frozenset(["delete"]), retention_ms=-1, retention_bytes=800)
    assert retention(log) == (
        "when 266 B more are written",
        "retention.ms sets no limit; the log holds 712 B, retention.bytes is 800 B",
    )
    log = log_of(cleanup_policy=frozenset(["delete"]), retention_ms=-1, retention_bytes=500)
    assert retention(log)[0] == "in at most 1 min"
    log.work.begin_cleaning()
    assert retention(log)[0] == "after the compaction that is under way"


def test_no_retention() -> None:
    assert retention(log_of())[0] == "never"
    assert retention(log_of(cleanup_policy=frozenset(["delete"]), retention_ms=-1))[0] == "never"
    log = log_of()
    log.retention.advance_log_start_offset(2)
    assert retention(log) == ("in at most 1 min", "the oldest segment lies before the log start offset 2")
