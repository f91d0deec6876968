"""Processes that check segments after a crash, while this one serves what is checked already and checks others itself.

A walk over batches of 16 KB is as fast as the disk; over batches of a hundred bytes it takes a second for 150 MB. A
process is started when there is that much to do in all, takes two walks at a time (one to work at, one to go on with),
and ends when there are no more.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from gregor.broker.jobs.worker_process import WorkerDied, WorkerProcess
from gregor.broker.log import logger

if TYPE_CHECKING:
    from gregor.storage.segment.scan import Scan

WORKER = "gregor.storage.recovery.scan_worker"
LINE_BYTES = 4 * 1024 * 1024
WALKS_PER_PROCESS = 2

WORTH_A_WALK = 2000
"""Batches that are left of it: two milliseconds. Handing a walk over and taking it back costs half of one."""
WORTH_A_PROCESS = 250_000
"""Batches that are left in all: a quarter of a second. A process is there in a tenth."""


class ScanHelper:
    """One broker's, at its start. `gregor.storage.folders.loading` says what is asked of it."""

    def __init__(self, most_processes: int) -> None:
        self.allow(most_processes)
        self._queue: asyncio.Queue[tuple[str, Scan]] = asyncio.Queue()
        self._processes: list[asyncio.Task[None]] = []
        self._walks = 0
        self._returned = asyncio.Event()
        self._broken = False
        self._ending: asyncio.Future[None] | None = None
        self.walks_done = 0

    def allow(self, most_processes: int) -> None:
        """So many at most, and never more than there are processors beside this process's own. Those that there are
        stay."""
        self._most_processes = max(1, min(most_processes, (os.cpu_count() or 1) - 1))

    def accepts(self, path: str, scan: Scan, left_bytes: int) -> bool:
        """As gregor.storage.folders.loading.ScanHelper says."""
        batches = scan.remaining_batches()
        if batches < WORTH_A_WALK or scan.was_refused or self._broken:
            return False
        if self._walks >= len(self._processes) * WALKS_PER_PROCESS:
            if len(self._processes) >= self._most_processes:
                return False
            left_batches = left_bytes * batches // (scan.end - scan.position)
            if left_batches < WORTH_A_PROCESS * (len(self._processes) + 1):
                return False
            self._processes.append(asyncio.create_task(self._serve()))
        scan.delegate()
        self._walks += 1
        self._queue.put_nowait((path, scan))
        return True

    async def wait(self) -> None:
        """Until a walk comes back."""
        await self._returned.wait()
        self._returned.clear()

    async def close(self) -> None:
        """End the processes; their walks are still delegated, and no more are accepted. A caller that is cancelled in
        it, or a second one, can wait for the same end."""
        self._broken = True
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        for task in self._processes:
            task.cancel()
        await asyncio.gather(*self._processes, return_exceptions=True)

    async def _serve(self) -> None:
        process = WorkerProcess(WORKER, LINE_BYTES)
        try:
            while True:
                path, scan = await self._queue.get()
                try:
                    if not self._broken:
                        await self._walk(process, path, scan)
                except (WorkerDied, OSError, ValueError) as error:
                    # One may have been killed, but this is no time for finding out whether the next one will be, too.
                    self._broken = True
                    logger.warning("recovery takes longer, as the process that checks segments ended: %s", error)
                self._walks -= 1
                scan.end_delegation()
                self._returned.set()
        finally:
            await process.close()

    async def _walk(self, process: WorkerProcess, path: str, scan: Scan) -> None:
        await process.start()
        await process.tell(path=path, scan=scan.job())
        answer = await process.receive()
        if "found" in answer:
            offset_entries = await process.receive_bytes(answer["offset_bytes"])
            time_entries = await process.receive_bytes(answer["time_bytes"])
            scan.complete(answer["found"], offset_entries, time_entries)
            self.walks_done += 1
        else:
            logger.info("%s is checked in the broker's own process: %s", path, answer["given_back"])
