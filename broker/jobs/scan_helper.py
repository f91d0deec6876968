"""Processes that check segments after a crash, while the broker serves checked partitions and checks others itself.

A walk over batches of 16 KB is as fast as the disk; over batches of a hundred bytes it needs a second for 150 MB. A
process is started when there is enough to check in all, has two walks at a time (one in work, one to follow it), and
ends when there are no more.
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
"""Batches that are left of it: two milliseconds. Delegating a walk and receiving its result costs half of one."""
WORTH_A_PROCESS = 250_000
"""Batches that are left in all: a quarter of a second. A process starts in a tenth."""


class ScanHelper:
    """Delegates walks while one broker starts. Implements `gregor.storage.folders.loading.ScanHelper`."""

    def __init__(self, max_processes: int) -> None:
        self.allow(max_processes)
        self._queue: asyncio.Queue[tuple[str, Scan]] = asyncio.Queue()
        self._processes: list[asyncio.Task[None]] = []
        self._walks = 0
        self._returned = asyncio.Event()
        self._broken = False
        self._ending: asyncio.Future[None] | None = None
        self.walks_done = 0

    def allow(self, max_processes: int) -> None:
        """Limit the processes to this number, and to the processors beside this process's own. Running ones stay."""
        self.max_processes = max(1, min(max_processes, (os.cpu_count() or 1) - 1))

    @property
    def process_count(self) -> int:
        """The number of processes that run."""
        return sum(not task.done() for task in self._processes)

    def accepts(self, path: str, scan: Scan, left_bytes: int) -> bool:
        """As in gregor.storage.folders.loading.ScanHelper."""
        batches = scan.remaining_batches()
        if batches < WORTH_A_WALK or scan.was_refused or self._broken:
            return False
        if self._walks >= len(self._processes) * WALKS_PER_PROCESS:
            if len(self._processes) >= self.max_processes:
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
        """Wait until the result of a walk arrives."""
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
                    # If it was killed, the next one may be, too: the start does not wait for another attempt.
                    self._broken = True
                    logger.warning(
                        "the process that checks segments ended, recovery continues more slowly without it: %s", error
                    )
                self._walks -= 1
                scan.end_delegation()
                self._returned.set()
        finally:
            await process.close()

    async def _walk(self, process: WorkerProcess, path: str, scan: Scan) -> None:
        await process.start()
        await process.send(path=path, scan=scan.job())
        answer = await process.receive()
        if "found" in answer:
            offset_entries = await process.receive_bytes(answer["offset_bytes"])
            time_entries = await process.receive_bytes(answer["time_bytes"])
            scan.complete(answer["found"], offset_entries, time_entries)
            self.walks_done += 1
        else:
            logger.info("%s is checked in the broker's own process: %s", path, answer["given_back"])
