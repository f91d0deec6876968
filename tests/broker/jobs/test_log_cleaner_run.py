"""One run of jobs.log_cleaner, its worker's part done in this process: changes of the log during the run."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterable
from typing import cast

import pytest

from gregor.broker.jobs.background import Background
from gregor.broker.jobs.cleaner_process import CleanerProcess, CleaningFailed
from gregor.broker.jobs.log_cleaner import LogCleaner
from gregor.broker.jobs.turns import LoopGate
from gregor.broker.jobs.worker_process import WorkerDied
from gregor.config.broker import BrokerConfig
from gregor.protocol.ids import random_uuid
from gregor.protocol.records.batch import CorruptBatch
from gregor.storage.cleaner.cleaner import CleanedGroup, CleaningJob, CleaningRun
from gregor.storage.folders.manager import LogManager
from gregor.storage.log.log import Log
from tests.storage.logs import NOW_MS, log_config, read_offsets, sequenced
from tests.storage.memory_files import MemoryFiles

CONFIG = BrokerConfig({"log.dirs": "/data"})
TABLE = log_config(cleanup_policy=frozenset(["compact"]), min_cleanable_dirty_ratio=0.0)


class ProcessHere(CleanerProcess):
    """Does the work at once."""

    def __init__(self, files: MemoryFiles, log: Log) -> None:
        super().__init__()
        self._files = files
        self._log = log
        self.jobs: list[CleaningJob] = []
        self.synced: list[int] = []
        self.before: Callable[[], None] = lambda: None

    async def clean(
        self,
        job: CleaningJob,
        producers: Iterable[list[tuple[int, int, int]]],
        bytes_per_second: float | None,
        swap: Callable[[CleanedGroup], Awaitable[None]],
    ) -> int:
        self.jobs.append(job)
        self.synced.append(self._log.recovery_point)
        known = {one: (offset, epoch) for some in producers for one, offset, epoch in some}
        self.before()
        run = CleaningRun(self._files, job, known)
        try:
            run.build_map()
            groups = run.groups()
        except (CorruptBatch, OSError) as error:
            raise CleaningFailed(str(error), getattr(error, "errno", None)) from error
        for group in groups:
            await swap(run.clean(group))
        return run.end_offset


def two_segments(files: MemoryFiles) -> tuple[LogManager, Log]:
    files.make_directory("/data")
    manager = LogManager(CONFIG, files, lambda: NOW_MS)
    log = manager.get_or_create("table", 0, random_uuid(), TABLE)
    append(log, 10)
    log.roll(NOW_MS)
    append(log, 1)
    return manager, log


def attempt(
    meanwhile: Callable[[MemoryFiles, Log], None],
    before: Callable[[Log], None] = lambda _log: None,
    is_served: Callable[[str, int], bool] = lambda _topic, _partition: True,
) -> tuple[ProcessHere, LogCleaner, Log]:
    """A run over a log of two segments, `meanwhile` after its first step, `before` when its worker begins to read."""
    files = MemoryFiles()
    manager, log = two_segments(files)
    process = ProcessHere(files, log)
    process.before = lambda: before(log)

    async def run() -> LogCleaner:
        background = Background(LoopGate())
        cleaner = LogCleaner(CONFIG, manager, background, lambda: NOW_MS, is_served, files)
        task = asyncio.create_task(cleaner._attempt(log, cast(CleanerProcess, process)))
        await asyncio.sleep(0)
        meanwhile(files, log)
        await task
        await background.close()
        return cleaner

    return process, asyncio.run(run()), log


def append(log: Log, count: int) -> None:
    for _ in range(count):
        log.append_as_leader(sequenced(7, 0, log.log_end_offset), 0, NOW_MS)
    log.offsets.restore_high_watermark(log.log_end_offset)


def test_what_comes_while_the_producers_are_asked_is_left_for_the_next_run() -> None:
    def more(_files: MemoryFiles, log: Log) -> None:
        append(log, 5)
        log.roll(NOW_MS)

    process, _, log = attempt(more)
    assert [job.first_uncleanable_offset for job in process.jobs] == [10]
    assert log.offsets.cleaned_offset == 10


def test_a_record_that_others_go_for_is_on_the_disk_first() -> None:
    process, _, _ = attempt(lambda _files, _log: None)
    assert process.synced == [10]


def test_a_swap_that_a_full_disk_has_no_room_for_is_tried_again() -> None:
    def fill(files: MemoryFiles, _log: Log) -> None:
        files.fail("rename", error=OSError(errno.ENOSPC, "no room for a longer name"))

    _, cleaner, log = attempt(fill)
    assert cleaner.trouble(log) is not None
    assert not cleaner.skips(log)
    assert not log.work.cleaning
    assert not log.offline


@pytest.mark.parametrize("is_stuck", [False, True])
def test_what_an_earlier_run_has_left_goes_before_the_next_one_begins(is_stuck: bool) -> None:
    """Beside it a start after a crash would discard the result of a swap that has deleted its sources."""
    left: list[Callable[[], bool]] = []

    def leave(files: MemoryFiles, log: Log) -> None:
        path = files.create(f"{log.directory}/{0:020d}.log.cleaned").path
        left.append(lambda: files.exists(path))
        if is_stuck:
            files.fail("unlink", error=OSError(errno.EMFILE, "Too many open files"))

    present: list[bool] = []
    process, cleaner, log = attempt(leave, lambda _log: present.append(left[0]()))
    assert present == ([] if is_stuck else [False])
    assert len(process.jobs) == (not is_stuck)
    assert (cleaner.trouble(log) is None) is not is_stuck
    assert not cleaner.skips(log)


@pytest.mark.parametrize(
    ("died", "truncate"),
    [
        (False, lambda log: log.truncate_to(3, NOW_MS)),
        (False, lambda log: log.truncate_fully_and_start_at(40, NOW_MS)),
        (True, lambda log: log.truncate_to(3, NOW_MS)),
    ],
)
def test_a_log_that_is_truncated_while_a_worker_reads_it_is_compacted_another_time(
    died: bool, truncate: Callable[[Log], None]
) -> None:
    """The log is truncated as by a follower whose leader has another history; the worker's error is no fault of the
    log."""

    def before(log: Log) -> None:
        truncate(log)
        if died:
            raise WorkerDied("it read what was cut off")

    _, cleaner, log = attempt(lambda _files, _log: None, before)
    assert cleaner.trouble(log) is None
    assert not log.work.cleaning
    assert log.offsets.cleaned_offset is None


def test_a_log_is_left_alone_until_its_topic_is_known() -> None:
    """It has the broker's default settings until then: the topic may keep every record."""
    process, cleaner, log = attempt(lambda _files, _log: None, is_served=lambda _topic, _partition: False)
    assert process.jobs == []
    assert read_offsets(log, 0) == list(range(11))
    assert cleaner.trouble(log) is None


@pytest.mark.parametrize("is_served", [False, True])
def test_only_a_log_of_a_known_topic_is_chosen(is_served: bool) -> None:
    files = MemoryFiles()
    manager, log = two_segments(files)

    async def dirtiest() -> Log | None:
        background = Background(LoopGate())
        cleaner = LogCleaner(CONFIG, manager, background, lambda: NOW_MS, lambda *_: is_served, files)
        found = await cleaner.dirtiest()
        await background.close()
        return found

    assert asyncio.run(dirtiest()) is (log if is_served else None)
