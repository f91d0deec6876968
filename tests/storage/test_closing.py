"""The clean stop of few logs and of many: what it leaves behind, and what becomes of failures."""

from __future__ import annotations

import pytest

from storage.closing import WORTH_THREADS, close_all_cleanly
from storage.log import Log
from storage.memory_files import MemoryFiles
from tests.storage.logs import NOW_MS, batch, open_log, read_offsets

FEW, MANY = 3, WORTH_THREADS + 40


def filled(files: MemoryFiles, count: int) -> list[Log]:
    """Every third log is empty, every fifth rolled."""
    logs = []
    for number in range(count):
        log = open_log(files, f"/data/orders-{number}")
        for _ in range(number % 3):
            log.append_as_leader(batch(2), 1, NOW_MS)
        if number % 5 == 0:
            log.roll(NOW_MS)
        logs.append(log)
    return logs


@pytest.mark.parametrize("count", [FEW, MANY])
def test_all_is_durable_after_it(count: int) -> None:
    files = MemoryFiles()
    logs = filled(files, count)
    assert close_all_cleanly(logs, NOW_MS) == []
    files.crash()
    for number, log in enumerate(logs):
        assert log.recovery_point == log.log_end_offset == 2 * (number % 3)
        again = open_log(files, f"/data/orders-{number}", recovery_point=log.recovery_point)
        assert again.log_end_offset == log.log_end_offset
        assert read_offsets(again, 0) == list(range(log.log_end_offset))


@pytest.mark.parametrize("count", [FEW, MANY])
def test_a_log_that_fails_is_named_and_the_others_are_closed(count: int) -> None:
    files = MemoryFiles()
    logs = filled(files, count)
    files.fail("sync", after=1)
    [failed] = close_all_cleanly(logs, NOW_MS)
    assert failed.offline
    assert all(log.recovery_point == log.log_end_offset for log in logs if log is not failed)


def test_a_log_that_is_offline_already_is_not_clean() -> None:
    files = MemoryFiles()
    logs = filled(files, MANY)
    logs[7].offline = True
    assert close_all_cleanly(logs, NOW_MS) == [logs[7]]
