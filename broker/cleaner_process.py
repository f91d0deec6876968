"""A worker process that compacts logs, as the event loop sees it (see storage.cleaner_worker for what is said)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from storage.cleaner import CleanedGroup, CleaningJob

WORKER = "storage.cleaner_worker"
_ROOT = str(Path(__file__).resolve().parent.parent)


class WorkerDied(Exception):
    """The process ended in the middle of a job. Nothing of the log is lost: the job can be done again."""


class CleaningFailed(Exception):
    """The worker could not do the job; it is ready for the next one."""

    def __init__(self, reason: str, errno: int | None) -> None:
        super().__init__(reason)
        self.errno = errno


class CleanerProcess:
    """Started by its first job. One job at a time."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._starting: asyncio.Task[Process] | None = None
        self._ending: asyncio.Future[None] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def clean(
        self,
        job: CleaningJob,
        producers: Iterable[list[tuple[int, int, int]]],
        bytes_per_second: float | None,
        swap: Callable[[CleanedGroup], Awaitable[None]],
    ) -> int:
        """Has a log compacted, calling `swap` with each group that is ready; returns the new first dirty offset.

        `producers`: (id, last offset, epoch) of the live ones, some at a time. Raises WorkerDied, CleaningFailed, and
        what `swap` raises; after that, as after a cancellation, the process must be closed.
        """
        process = self._process
        if process is None:
            # A start that is cancelled half way must not leave a process that nobody knows of.
            self._starting = asyncio.create_task(_start())
            process = self._process = await asyncio.shield(self._starting)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for some in producers:
                await self._tell(process.stdin, producers=some)
            await self._tell(process.stdin, job=job._asdict(), bytes_per_second=bytes_per_second)
            while line := await process.stdout.readline():
                answer = json.loads(line)
                if "cleaned" in answer:
                    await swap(CleanedGroup(**answer["cleaned"]))
                    await self._tell(process.stdin, swapped=True)
                elif "done" in answer:
                    return int(answer["done"]["end_offset"])
                elif "error" in answer:
                    raise CleaningFailed(answer["error"], answer["errno"])
        except (BrokenPipeError, ConnectionResetError):
            pass
        raise WorkerDied(f"the worker ended with status {await process.wait()}")

    async def close(self) -> None:
        """Ends the process, whatever it is at. Who is cancelled in it, or comes second, can wait for the same end."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        if self._starting is not None and self._process is None:
            with suppress(OSError):
                self._process = await self._starting
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            if process.stdin is not None:
                process.stdin.close()
            await process.wait()
            # Its pipes are let go in the loop's next turns: after them nothing of it is left, should the loop end now.
            for _ in range(3):
                await asyncio.sleep(0)
        self._process = self._starting = self._ending = None

    @staticmethod
    async def _tell(stdin: asyncio.StreamWriter, **message: Any) -> None:
        stdin.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        await stdin.drain()


async def _start() -> Process:
    # The packages may lie in a checkout that only this process's own path knows.
    path = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    return await asyncio.create_subprocess_exec(sys.executable, "-m", WORKER, stdin=PIPE, stdout=PIPE, env=environment)
