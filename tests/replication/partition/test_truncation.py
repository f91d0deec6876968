"""partition.truncation: one log after the other, each once; the callback is called also if a log cannot be synced."""

from __future__ import annotations

import asyncio
from typing import Any

from gregor.replication.partition.truncation import TruncatedLogs
from gregor.storage.log.log import Log
from tests.replication.fakes import on_loop
from tests.storage.logs import NOW_MS, batch, open_log
from tests.storage.memory_files import MemoryFiles


def cut_log(files: Any, directory: str = "/logs/t-0") -> Log:
    log = open_log(files, directory)
    for _ in range(3):
        log.append_as_leader(batch(), 0, NOW_MS)
    log.flusher.flush()
    log.truncate_to(1)
    return log


async def flush(log: Log) -> None:
    await asyncio.sleep(0)  # the others get a turn, as while a thread is at it
    log.flusher.flush(NOW_MS)


async def withdraw() -> None:
    """There are no recovery points."""


def other_tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {task for task in (asyncio.current_task(),) if task is not None}


async def drained() -> None:
    while others := other_tasks():
        for task in others:
            await task


@on_loop
async def test_each_is_synced_once_and_all_who_wait_are_told() -> None:
    files = MemoryFiles()
    logs = [cut_log(files, f"/logs/t-{index}") for index in range(3)]
    told: list[Any] = []
    truncated_logs = TruncatedLogs(flush, withdraw)

    def first(log: Log) -> None:
        told.append(("first", log.directory, log.flusher.is_truncated))

    def second(log: Log) -> None:
        told.append(("second", log.directory, log.flusher.is_truncated))

    syncs = files.calls["sync"]
    for log in logs:
        truncated_logs.sync(log, first)
        truncated_logs.sync(log, first)
    truncated_logs.sync(logs[0], second)
    await drained()
    assert told == [("first", "/logs/t-0", False), ("second", "/logs/t-0", False)] + [
        ("first", f"/logs/t-{index}", False) for index in (1, 2)
    ]
    assert files.calls["sync"] - syncs == 3 * 3  # log and both indexes of each
    truncated_logs.sync(logs[0], second)  # nothing to do
    await drained()
    assert told[-1] == ("second", "/logs/t-0", False)
    files.crash()
    assert [open_log(files, log.directory).log_end_offset for log in logs] == [1, 1, 1]


@on_loop
async def test_who_waits_for_a_disk_that_fails_is_told_too() -> None:
    files = MemoryFiles()
    log, other = cut_log(files), cut_log(files, "/logs/u-0")
    files.fail("sync", 1)
    told: list[Log] = []
    truncated_logs = TruncatedLogs(flush, withdraw)
    truncated_logs.sync(log, told.append)
    truncated_logs.sync(other, told.append)
    await drained()
    assert told == [log, other]
    assert log.offline and not other.flusher.is_truncated


@on_loop
async def test_the_end_waits_for_no_more_than_is_under_way() -> None:
    files = MemoryFiles()
    logs = [cut_log(files, f"/logs/t-{index}") for index in range(2)]
    told: list[Any] = []
    truncated_logs = TruncatedLogs(flush, withdraw)
    for log in logs:
        truncated_logs.sync(log, told.append)
    await asyncio.sleep(0)
    await truncated_logs.close()
    assert [log.flusher.is_truncated for log in logs] == [False, True]
    assert told == [] and not other_tasks()
    await truncated_logs.close()


@on_loop
async def test_nobody_goes_on_before_recovery_points_are_withdrawn() -> None:
    told: list[Any] = []
    log = cut_log(MemoryFiles())

    async def withdrawn() -> None:
        assert not log.flusher.is_truncated and not told
        await asyncio.sleep(0)
        told.append("withdrawn")

    truncated_logs = TruncatedLogs(flush, withdrawn)
    truncated_logs.sync(log, told.append)
    await drained()
    assert told == ["withdrawn", log]


@on_loop
async def test_what_is_cut_again_meanwhile_is_synced_again() -> None:
    log = cut_log(MemoryFiles())
    told: list[Any] = []

    async def cut_again() -> None:
        if log.log_end_offset:
            log.truncate_to(0)

    truncated_logs = TruncatedLogs(flush, cut_again)
    truncated_logs.sync(log, lambda log: told.append((log.flusher.is_truncated, log.log_end_offset)))
    await drained()
    assert told == [(False, 0)]
