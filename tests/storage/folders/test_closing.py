"""The clean stop of few logs and of many: what it leaves behind, and what becomes of failures."""

from __future__ import annotations

import pytest

from gregor.storage.folders.closing import close_all_cleanly
from gregor.storage.log.log import Log
from tests.storage.logs import NOW_MS, batch, open_log, read_offsets
from tests.storage.memory_files import MemoryFiles

FEW, MANY, VERY_MANY = 3, 20, 50


@pytest.fixture(autouse=True)
def _sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gregor.storage.folders.closing.WORTH_THREADS", MANY)
    monkeypatch.setattr("gregor.storage.folders.closing.WORTH_EVERYTHING", VERY_MANY)


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


@pytest.mark.parametrize("count", [FEW, MANY, VERY_MANY])
def test_all_is_durable_after_it(count: int) -> None:
    files = MemoryFiles()
    logs = filled(files, count)
    assert close_all_cleanly(logs, files, NOW_MS) == []
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
    [failed] = close_all_cleanly(logs, files, NOW_MS)
    assert failed.offline
    assert all(log.recovery_point == log.log_end_offset for log in logs if log is not failed)


def test_a_log_that_is_offline_already_is_not_clean() -> None:
    files = MemoryFiles()
    logs = filled(files, MANY)
    logs[7].retire()
    assert close_all_cleanly(logs, files, NOW_MS) == [logs[7]]


def test_very_many_are_synced_with_everything() -> None:
    files = MemoryFiles()
    logs = filled(files, VERY_MANY)
    before = files.calls["sync"]
    assert close_all_cleanly(logs, files, NOW_MS) == []
    assert files.calls["sync_everything"] == 1
    assert files.calls["sync"] == before


def test_where_that_cannot_be_done_they_are_synced_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    monkeypatch.setattr(files, "sync_everything", lambda _path: False)
    logs = filled(files, VERY_MANY)
    assert close_all_cleanly(logs, files, NOW_MS) == []
    files.crash()
    assert all(log.recovery_point == log.log_end_offset for log in logs)
    again = open_log(files, "/data/orders-2", recovery_point=4)
    assert again.log_end_offset == 4


def test_when_it_fails_no_log_of_the_folder_is_clean() -> None:
    files = MemoryFiles()
    logs = filled(files, VERY_MANY)
    other = open_log(files, "/other/orders-0")
    files.fail("sync_everything")
    unclean = close_all_cleanly([*logs, other], files, NOW_MS)
    assert len(unclean) == VERY_MANY
    assert other not in unclean
