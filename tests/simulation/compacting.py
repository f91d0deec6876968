"""Compaction in a simulated broker: gregor's own, with the worker's part done in the broker's process, group by group,
so that between any two steps everything may happen that happens elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from gregor.broker.jobs.log_cleaner import CleaningResult, LogCleaner
from gregor.protocol.records.batch import CorruptBatch
from gregor.storage.cleaner.cleaner import CleanedGroup, CleaningJob, CleaningRun
from gregor.storage.log.swap import LogChanged

if TYPE_CHECKING:
    from gregor.storage.log.log import Log
    from tests.simulation.disks import Disk

STEP_S = 0.05


class _Worker:
    """Stand in for the worker of gregor.broker.jobs.cleaner_process."""

    pid = None

    def __init__(self, files: Disk) -> None:
        self._files = files

    async def clean(
        self,
        job: CleaningJob,
        producers: Iterable[list[tuple[int, int, int]]],
        _bytes_per_second: float | None,
        swap: Callable[[CleanedGroup], Awaitable[None]],
    ) -> int:
        live = {id_: (offset, epoch) for some in producers for id_, offset, epoch in some}
        run = CleaningRun(cast("Any", self._files), job, live)
        try:
            run.build_map()
            for group in run.groups():
                await asyncio.sleep(STEP_S)
                cleaned = run.clean(group)
                await asyncio.sleep(STEP_S)
                await swap(cleaned)
        except (OSError, CorruptBatch, ValueError) as error:
            # The log may have been truncated meanwhile. If not, the next run fails, too, and nothing is ever compacted.
            raise LogChanged(repr(error)) from error
        return run.end_offset

    async def close(self) -> None:
        return


class Cleaner(LogCleaner):
    def _begin(self, log: Log, order: asyncio.Future[CleaningResult] | None) -> None:
        self._idle = [(cast("Any", _Worker(cast("Any", self._files))), 0.0)]
        super()._begin(log, order)
