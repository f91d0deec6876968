"""The event loop's side of a worker process that compacts logs (storage.cleaner.worker describes the messages)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from gregor.broker.jobs.worker_process import WorkerProcess
from gregor.storage.cleaner.cleaner import CleanedGroup, CleaningJob

WORKER = "gregor.storage.cleaner.worker"


class CleaningFailed(Exception):
    """The worker could not do the job, but is ready for the next one."""

    def __init__(self, reason: str, errno: int | None) -> None:
        super().__init__(reason)
        self.errno = errno


class CleanerProcess(WorkerProcess):
    """A worker that its first job starts. It does one job at a time."""

    def __init__(self) -> None:
        super().__init__(WORKER)

    async def clean(
        self,
        job: CleaningJob,
        producers: Iterable[list[tuple[int, int, int]]],
        bytes_per_second: float | None,
        swap: Callable[[CleanedGroup], Awaitable[None]],
    ) -> int:
        """Compact a log, calling `swap` with each group that is ready; returns the new first dirty offset.

        `producers`: (id, last offset, epoch) of the live ones, some at a time. Raises WorkerDied (nothing of the log is
        lost: the job can be done again), CleaningFailed, and any exception of `swap`; after that, as after a
        cancellation, the process must be closed.
        """
        await self.start()
        for some in producers:
            await self.send(producers=some)
        await self.send(job=job._asdict(), bytes_per_second=bytes_per_second)
        while True:
            answer = await self.receive()
            if "cleaned" in answer:
                await swap(CleanedGroup(**answer["cleaned"]))
                await self.send(swapped=True)
            elif "done" in answer:
                return int(answer["done"]["end_offset"])
            elif "error" in answer:
                raise CleaningFailed(answer["error"], answer["errno"])
