"""The log cleaner of a broker: the choice of the next log, the worker processes that compact, and their results.

The logs are checked every log.cleaner.backoff.ms, and right after a run; the dirtiest one that is due is compacted,
log.cleaner.threads of them at the same time. The work per record is the worker's (storage.cleaner.worker); the steps
here are as short as a few file renames. Workers are started when there is work and end when there is none.

A log that cannot be compacted is skipped from then on, with an error in the broker's log, until the next start or an
order to compact it now; after a full disk, or the death of a worker, another attempt follows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from gregor.broker.jobs.cleaner_process import CleanerProcess, CleaningFailed
from gregor.broker.jobs.maintenance import flush_log
from gregor.broker.jobs.worker_process import WorkerDied
from gregor.broker.log import logger
from gregor.broker.units import size
from gregor.protocol.errors import KafkaError
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import ITEMS_PER_STEP, collect, run_all
from gregor.storage.cleaner.cleaner import CleanedGroup, CleaningJob
from gregor.storage.fs.disk_errors import FULL, OF_THE_PROCESS
from gregor.storage.log.swap import LogChanged, unlink_unfinished

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.config.broker import BrokerConfig
    from gregor.protocol.turns import Steps
    from gregor.storage.folders.manager import LogManager
    from gregor.storage.fs.files import Files
    from gregor.storage.log.compaction import DirtyRange
    from gregor.storage.log.log import Log
    from gregor.storage.segment.segment import Segment

IDLE_WORKER_S = 30.0
"""A worker without work ends after this time: it uses some 15 MB."""

DEATHS_TOLERATED = 3
"""Workers that may die over one log, one after the other, before it is skipped."""

PRODUCERS_PER_MESSAGE = 500
UNLIMITED_BYTES_PER_SECOND = 1e15


class CleaningResult(NamedTuple):
    """The result of a run. `reason`: why nothing was compacted, or the failure."""

    cleaned: bool
    reason: str
    bytes_before: int = 0
    bytes_after: int = 0
    records_read: int = 0
    records_kept: int = 0
    elapsed_s: float = 0.0


_STOPPING = CleaningResult(False, "the broker stops")


class _Trouble(NamedTuple):
    """The reason why a log is not compacted."""

    log: Log
    reason: str
    deaths: int
    retry_at_ms: int | None
    """None: only an order compacts it."""


class LogCleaner:
    """The compaction of one broker, from `start()` until the background is closed.

    `is_served` returns whether a partition is one of a known topic. The others are not compacted: their logs do not
    have their topic's settings yet, which may keep every record.
    """

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        background: Background,
        clock_ms: Callable[[], int],
        is_served: Callable[[str, int], bool],
        files: Files,
    ) -> None:
        self._is_served = is_served
        self._config = config
        self._logs = logs
        self._background = background
        self._clock_ms = clock_ms
        self._files = files
        self._wake = asyncio.Event()
        self._idle: list[tuple[CleanerProcess, float]] = []
        self._running: dict[TopicPartition, CleanerProcess] = {}
        self._ordered: dict[TopicPartition, tuple[Log, asyncio.Future[CleaningResult]]] = {}
        self._carried_out: dict[TopicPartition, asyncio.Future[CleaningResult]] = {}
        """The orders that are running."""
        self._trouble: dict[TopicPartition, _Trouble] = {}
        self._not_before_ms: dict[TopicPartition, int] = {}
        """The earliest next run over logs of which a run compacted nothing."""
        self.next_check_ms = 0
        """The time of the next check of the logs, if no run ends before."""

    def start(self) -> None:
        self._background.spawn(self._supervise())

    # -- state and orders ------------------------------------------------------------------------------------------

    def worker_pids(self) -> list[int]:
        processes = [*self._running.values(), *(process for process, _ in self._idle)]
        return [process.pid for process in processes if process.pid is not None]

    def is_running(self, log: Log) -> bool:
        return TopicPartition(log.topic, log.partition) in self._running

    def trouble(self, log: Log) -> str | None:
        """Return why the log is skipped, or waits for another attempt; None if its last run succeeded."""
        found = self._trouble.get(TopicPartition(log.topic, log.partition))
        return found.reason if found is not None and found.log is log else None

    def skips(self, log: Log) -> bool:
        """Whether only an order compacts the log, as its compaction has failed for good."""
        found = self._trouble.get(TopicPartition(log.topic, log.partition))
        return found is not None and found.log is log and found.retry_at_ms is None

    async def compact_now(self, log: Log) -> CleaningResult:
        """Compact the log as far as is allowed, however small its dirty part, before all other logs."""
        key = TopicPartition(log.topic, log.partition)
        waiting = self._ordered.get(key)
        if waiting is None or waiting[0] is not log:
            self._trouble.pop(key, None)
            waiting = self._ordered[key] = log, asyncio.get_running_loop().create_future()
        self._wake.set()
        return await asyncio.shield(waiting[1])

    # -- the loop --------------------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        try:
            while True:
                self._wake.clear()
                try:
                    await self._start_what_is_due()
                except (KafkaError, OSError) as error:
                    logger.error(
                        "no log could be chosen for compaction: %s; tried again after log.cleaner.backoff.ms", error
                    )
                except Exception:  # a bug: this check is lost, the next ones must not be
                    logger.exception("compaction failed")
                await self._end_idle_workers()
                pause_s = self._config["log.cleaner.backoff.ms"] / 1000
                self.next_check_ms = self._clock_ms() + int(pause_s * 1000)
                if self._idle:
                    pause_s = min(pause_s, IDLE_WORKER_S)
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(pause_s, 0.01)):
                        await self._wake.wait()
        finally:
            # A run that was cancelled before its first step neither closes its process nor completes its order.
            orders = [*(order for _, order in self._ordered.values()), *self._carried_out.values()]
            for order in orders:
                if not order.done():
                    order.set_result(_STOPPING)
            for process in [*self._running.values(), *(process for process, _ in self._idle)]:
                await process.close()
            self._idle.clear()

    async def _start_what_is_due(self) -> None:
        threads = self._config["log.cleaner.threads"] if self._config["log.cleaner.enable"] else 0
        for key, (log, order) in list(self._ordered.items()):
            if key not in self._running and len(self._running) < max(threads, 1):
                del self._ordered[key]
                self._begin(log, order)
        while len(self._running) < threads:
            found = await self.dirtiest()
            if found is None or TopicPartition(found.topic, found.partition) in self._running:
                return
            self._begin(found, None)

    async def dirtiest(self) -> Log | None:
        """Return the log to compact next; None if none is due."""
        now_ms = self._clock_ms()
        due: list[tuple[float, Log]] = []
        await self._background.search(self._load_ages(now_ms))
        await self._background.run_steps(collect(self._check(log, now_ms, due) for log in self._with_room()))
        self._trouble = {key: one for key, one in self._trouble.items() if self._logs.logs.get(key) is one.log}
        self._not_before_ms = {key: at_ms for key, at_ms in self._not_before_ms.items() if now_ms < at_ms}
        present = [one for one in due if self._logs.get(one[1].topic, one[1].partition) is one[1]]
        return max(present, key=lambda one: one[0])[1] if present else None

    def _load_ages(self, now_ms: int) -> Steps[None]:
        """Load the ages of segments that are needed, so that the loop need not wait for the disk."""
        for count, log in enumerate(self._with_room(), 1):
            if log.config.compact and not log.offline and self._is_served(log.topic, log.partition):
                yield from log.prefetching(partial(log.dirty_range, now_ms, waits_for_disk=False))
            if not count % ITEMS_PER_STEP:
                yield None

    def _with_room(self) -> Iterator[Log]:
        """Return the logs on disks that are not full: a run needs room before it frees some, and appends need that,
        too."""
        full = {folder.path for folder in self._logs.folders if folder.full}
        for _, log in self._logs.logs.walk():
            if not full or self._logs.folder_of(log) not in full:
                yield log

    def _check(self, log: Log, now_ms: int, due: list[tuple[float, Log]]) -> bool:
        key = TopicPartition(log.topic, log.partition)
        if not log.config.compact or log.offline or not log.work.lets_clean or key in self._running:
            return False
        if now_ms < self._not_before_ms.get(key, 0) or not self._is_served(*key):
            return False
        trouble = self._trouble.get(key)
        if trouble is not None and trouble.log is log and (trouble.retry_at_ms is None or now_ms < trouble.retry_at_ms):
            return False
        try:
            dirty = self.dirty_range(log, now_ms)
        except KafkaError as error:
            self._failed(log, error)
            return True
        if dirty.is_due(log.config.min_cleanable_dirty_ratio):
            due.append((dirty.ratio, log))
        return True

    def dirty_range(self, log: Log, now_ms: int) -> DirtyRange:
        """Return Log.dirty_range; a cleaned offset that the log no longer contains is reset."""
        dirty = log.dirty_range(now_ms)
        if dirty.restarts:
            if not log.config.delete:
                logger.warning(
                    "%s-%d: compacted up to offset %s, which is not in the log any more; starting over at %d",
                    log.topic, log.partition, log.offsets.cleaned_offset, dirty.first_dirty_offset,
                )  # fmt: skip
            log.offsets.mark_cleaned_to(dirty.first_dirty_offset)
        return dirty

    # -- one run ---------------------------------------------------------------------------------------------------

    def _begin(self, log: Log, order: asyncio.Future[CleaningResult] | None) -> None:
        process = self._idle.pop()[0] if self._idle else CleanerProcess()
        self._running[TopicPartition(log.topic, log.partition)] = process
        if order is not None:
            self._carried_out[TopicPartition(log.topic, log.partition)] = order
        self._background.spawn(self._run(log, process, order))

    async def _run(self, log: Log, process: CleanerProcess, order: asyncio.Future[CleaningResult] | None) -> None:
        key = TopicPartition(log.topic, log.partition)
        result = _STOPPING
        try:
            result = await self._attempt(log, process)
            if not result.cleaned:
                self._not_before_ms[key] = self._clock_ms() + self._config["log.cleaner.backoff.ms"]
        finally:
            del self._running[key]
            self._carried_out.pop(key, None)
            if order is not None and not order.done():
                order.set_result(result)
            self._wake.set()

    async def _attempt(self, log: Log, process: CleanerProcess) -> CleaningResult:
        key = TopicPartition(log.topic, log.partition)
        generation = log.generation
        log.work.begin_cleaning()
        try:
            result = await self._clean(log, process)
        except BaseException as error:
            log.work.end_cleaning()
            await process.close()
            with suppress(OSError):  # the partition may have been removed; the next run removes any other leftovers
                await self._background.run(partial(unlink_unfinished, self._files, log.directory))
            if isinstance(error, (WorkerDied, CleaningFailed)) and log.generation != generation:
                # A follower truncated it: the error of the worker is no fault of the log.
                error = LogChanged(f"{log.topic}-{log.partition} changed while it was compacted")
            if isinstance(error, (LogChanged, WorkerDied, CleaningFailed, KafkaError, OSError)):
                return self._failed(log, error)
            raise
        log.work.end_cleaning()
        self._idle.append((process, time.monotonic()))
        self._trouble.pop(key, None)
        if log.config.delete and self._logs.get(*key) is log:
            with suppress(KafkaError):  # the next retention run raises it again, and logs it
                paths = log.retention.delete_due(self._clock_ms())
                self._background.remove_later(paths, log.config.file_delete_delay_ms)
        return result

    async def _clean(self, log: Log, process: CleanerProcess) -> CleaningResult:
        if not self._is_served(log.topic, log.partition):
            return CleaningResult(False, "the settings of its topic are not known yet")
        if log.work.moving:
            return CleaningResult(False, "nothing to compact: the partition is being moved to another data folder")
        started_s = time.monotonic()
        generation = log.generation
        # No further than the log reaches now: the producers below may not cover later appends.
        stable_offset = min(log.last_stable_offset, log.segments[-1].base_offset)
        await self._make_durable(log, stable_offset, generation)
        # Of an earlier run. Beside a stale .cleaned file a start would treat a complete .swap as one that is not.
        await self._background.run(partial(unlink_unfinished, self._files, log.directory))
        producers, open_from = await self._background.run_steps(_live_producers(log))
        now_ms = self._clock_ms()
        await self._background.search(log.prefetching(partial(log.dirty_range, now_ms, waits_for_disk=False)))
        dirty = log.dirty_range(now_ms, min(stable_offset, open_from))
        if not dirty.cleanable_bytes:
            return CleaningResult(False, f"nothing to compact: {dirty.bound.value}")
        segments = {one.base_offset: one for one in log.segments if one.base_offset < dirty.first_uncleanable_offset}
        job = self._job(log, dirty, [(base, one.size_bytes) for base, one in segments.items()], now_ms)
        groups: list[CleanedGroup] = []

        async def swap(cleaned: CleanedGroup) -> None:
            await self._swap(log, cleaned, [segments[base] for base in cleaned.sources], generation)
            groups.append(cleaned)

        limit = self._config["log.cleaner.io.max.bytes.per.second"] / max(1, len(self._running))
        end_offset = await process.clean(job, producers, None if limit > UNLIMITED_BYTES_PER_SECOND else limit, swap)
        if log.generation == generation:
            log.offsets.mark_cleaned_to(end_offset)
        self._logs.report(await self._background.run(run_all(self._logs.checkpoints.cleaned_offsets())))
        result = CleaningResult(
            True,
            "",
            sum(one.bytes_read for one in groups),
            sum(one.size_bytes for one in groups),
            sum(one.records_read for one in groups),
            sum(one.records_kept for one in groups),
            time.monotonic() - started_s,
        )
        logger.info(
            "compacted %s-%d from offset %d to %d: %s became %s, %d of %d records stay, %.1f s",
            log.topic, log.partition, dirty.first_dirty_offset, end_offset, size(result.bytes_before),
            size(result.bytes_after), result.records_kept, result.records_read, result.elapsed_s,
        )  # fmt: skip
        return result

    async def _make_durable(self, log: Log, stable_offset: int, generation: int) -> None:
        """Flush the log below `stable_offset`, and its recovery point. A crash of the machine must not lose a record
        for which older ones were removed, and a recovery must know that the gaps do not come from such a crash."""
        while log.recovery_point < stable_offset:
            await flush_log(log, self._background, self._clock_ms(), rolled_only=True)
            if log.generation != generation or log.offline:
                raise LogChanged(f"{log.topic}-{log.partition} changed before it was compacted")
        errors = await self._background.run(run_all(self._logs.checkpoints.recovery_points()))
        self._logs.report(errors)
        if self._logs.get(log.topic, log.partition) is log and self._logs.folder_of(log) in errors:
            raise errors[self._logs.folder_of(log)]

    async def _swap(self, log: Log, cleaned: CleanedGroup, sources: list[Segment], generation: int) -> None:
        """Replace the sources by their cleaned segment."""
        if not log.config.compact:
            raise LogChanged(f"{log.topic}-{log.partition} is not a compacted topic's any more")
        plan = log.swap.begin(cleaned.base_offset, cleaned.size_bytes, sources, generation)
        try:
            await self._background.run(plan.sync)
            replaced = log.swap.finish(plan)
        except BaseException:
            # At once: the broker may be about to stop.
            paths = log.swap.discard(plan)
            await self._background.run(partial(unlink_unfinished, self._files, log.directory, paths))
            raise
        # The replaced files are removed only when the name of their successor is durable.
        await self._background.run(plan.sync)
        self._background.remove_later(replaced, log.config.file_delete_delay_ms)

    def _job(self, log: Log, dirty: DirtyRange, segments: list[tuple[int, int]], now_ms: int) -> CleaningJob:
        config = self._config
        workers = max(1, config["log.cleaner.threads"])
        return CleaningJob(
            directory=log.directory,
            segments=segments,
            first_dirty_offset=dirty.first_dirty_offset,
            first_uncleanable_offset=dirty.first_uncleanable_offset,
            now_ms=now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
            segment_bytes=log.config.segment_bytes,
            index_bytes=log.config.segment_index_bytes,
            index_interval_bytes=log.config.index_interval_bytes,
            map_bytes=config["log.cleaner.dedupe.buffer.size"] // workers,
            map_load_factor=config["log.cleaner.io.buffer.load.factor"],
            window_bytes=config["log.cleaner.io.buffer.size"] // workers // 2,
        )

    def _failed(self, log: Log, error: BaseException) -> CleaningResult:
        key = TopicPartition(log.topic, log.partition)
        if self._logs.get(*key) is not log:
            return CleaningResult(False, "the partition was removed meanwhile")
        if isinstance(error, LogChanged):
            return CleaningResult(False, str(error))
        before = self._trouble.get(key)
        deaths = before.deaths if before is not None and before.log is log else 0
        retry_at_ms: int | None = self._clock_ms() + self._config["log.cleaner.backoff.ms"]
        reason = str(error)
        if isinstance(error, WorkerDied):
            deaths += 1
            if deaths >= DEATHS_TOLERATED:
                retry_at_ms = None
        elif not _is_temporary(error):
            retry_at_ms = None
        self._trouble[key] = _Trouble(log, reason, deaths, retry_at_ms)
        if retry_at_ms is None:
            logger.error("%s-%d cannot be compacted, compaction skips it: %s", *key, reason)
        else:
            logger.warning("%s-%d was not compacted, another attempt follows: %s", *key, reason)
        return CleaningResult(False, reason)

    async def _end_idle_workers(self) -> None:
        until_s = time.monotonic() - IDLE_WORKER_S
        for one in [one for one in self._idle if one[1] <= until_s]:
            await one[0].close()
            self._idle.remove(one)  # only now: a stop in the meantime has to close it


def _live_producers(log: Log) -> Steps[tuple[list[list[tuple[int, int, int]]], int]]:
    """Return (id, last offset or -1, epoch) of each, by message to the worker, and the first offset of an open
    transaction."""
    messages = []
    open_from = 2**63 - 1
    rest = iter(list(log.producers.entries.values()))
    while chosen := list(islice(rest, PRODUCERS_PER_MESSAGE)):
        messages.append([(one.producer_id, one.batches[-1][1] if one.batches else -1, one.epoch) for one in chosen])
        open_from = min([open_from, *(one.transaction_first_offset for one in chosen
                                      if one.transaction_first_offset >= 0)])  # fmt: skip
        yield None
    return messages, open_from


def _is_temporary(error: BaseException | None) -> bool:
    """Whether the cause is a lack of room, descriptors or memory, of which there may be more later."""
    while error is not None:
        if isinstance(error, (OSError, CleaningFailed)):
            return error.errno in FULL | OF_THE_PROCESS
        error = error.__cause__
    return False
