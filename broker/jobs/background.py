"""Work for threads: calls that release the GIL and would stall the loop (fsync, unlink, checkpoint files, codecs).

fsync has an executor of its own: a slow disk must not keep deletions waiting, nor the other way round. aiofiles runs a
whole function on a thread, one hop per operation: each of several awaits would wait for a turn of the loop.
"""

from __future__ import annotations

import asyncio
import operator
import os
import shutil
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from gregor.broker.log import logger

if TYPE_CHECKING:
    from gregor.broker.jobs.turns import LoopGate
    from gregor.protocol.turns import Steps
    from gregor.storage.log.log import Log

ResultT = TypeVar("ResultT")
ArgsT = ParamSpec("ArgsT")

READERS = 2
READERS_AHEAD = 6
"""This many connections may wait for the disk at a time, each for a piece of a cold segment."""
GATHERED_S = 0.1
"""Paths with the same delay that come within this time are removed by one task."""
LARGE_BATCHES = 3
"""This many may be decompressed at a time, each to 64 MB at most."""


@cache
def _wrapped_call() -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return the wrapper of aiofiles around a call; the import costs 4 ms, which a start without such work saves."""
    import aiofiles.os

    wrapped: Callable[..., Coroutine[Any, Any, Any]] = aiofiles.os.wrap(operator.call)
    return wrapped


def on_thread(
    executor: Executor, function: Callable[ArgsT, ResultT], *args: ArgsT.args, **kwargs: ArgsT.kwargs
) -> Coroutine[Any, Any, ResultT]:
    """Call `function` on a thread of `executor`."""
    return _wrapped_call()(function, *args, executor=executor, **kwargs)


def remove(path: str) -> None:
    """Remove a file, or a folder with all that it holds."""
    if os.path.isdir(path):
        shutil.rmtree(path)
    else:
        os.remove(path)


class Background:
    """The broker's threads and background tasks. `close()` waits for the calls that are under way."""

    def __init__(self, gate: LoopGate) -> None:
        self.gate = gate
        self._fsync = ThreadPoolExecutor(1, "fsync")
        self._files = ThreadPoolExecutor(1, "files")
        self._codecs = ThreadPoolExecutor(1, "codecs")
        self._reads = ThreadPoolExecutor(READERS, "reads")
        self._ahead = ThreadPoolExecutor(READERS_AHEAD, "read-ahead")
        self.large_batches = asyncio.Semaphore(LARGE_BATCHES)
        """To be held while the decompressed records of a batch are in memory."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._kept: set[asyncio.Future[Any]] = set()
        self._removals: set[asyncio.Future[None]] = set()
        self._gathering: dict[int, list[str]] = {}
        """By delay in ms, the paths whose removal began within the last GATHERED_S: more may join them."""
        self.flushes: dict[Log, asyncio.Event] = {}
        """Logs whose flush is awaited, and the event at the end of the flush that is under way
        (jobs.maintenance.flush_to)."""

    @property
    def spawned_count(self) -> int:
        """The number of spawned coroutines that are not done."""
        return len(self._tasks)

    def fsync(
        self, function: Callable[ArgsT, ResultT], *args: ArgsT.args, **kwargs: ArgsT.kwargs
    ) -> Coroutine[Any, Any, ResultT]:
        """Call a function that waits for a disk to write, alone."""
        return on_thread(self._fsync, function, *args, **kwargs)

    def run(
        self, function: Callable[ArgsT, ResultT], *args: ArgsT.args, **kwargs: ArgsT.kwargs
    ) -> Coroutine[Any, Any, ResultT]:
        """Call a function that reads, writes or removes small files."""
        return on_thread(self._files, function, *args, **kwargs)

    def read(
        self, function: Callable[ArgsT, ResultT], *args: ArgsT.args, **kwargs: ArgsT.kwargs
    ) -> Coroutine[Any, Any, ResultT]:
        """Call a function that may wait for a disk to read."""
        return on_thread(self._reads, function, *args, **kwargs)

    def read_ahead(
        self, function: Callable[ArgsT, ResultT], *args: ArgsT.args, **kwargs: ArgsT.kwargs
    ) -> Coroutine[Any, Any, ResultT]:
        """Call a function that brings the next bytes of a response into the page cache: no search holds it up."""
        return on_thread(self._ahead, function, *args, **kwargs)

    async def run_steps(self, steps: Steps[ResultT]) -> ResultT:
        """Run long work in turns (jobs.turns), its calls on a thread."""
        return await self.gate.run(steps, self._codecs)

    async def search(self, steps: Steps[ResultT]) -> ResultT:
        """Run long work in turns, its calls on the threads that wait for a disk."""
        return await self.gate.run(steps, self._reads)

    def remove_later(self, paths: Iterable[str], delay_ms: int) -> None:
        """Unlink renamed files and folders after `file.delete.delay.ms`, when no fetch reads them any more. Those of
        one moment are removed one after the other: thousands of timers that end at once would hold the loop up."""
        chosen = list(paths)
        if not chosen:
            return
        loop = asyncio.get_running_loop()
        gathering = self._gathering.get(delay_ms)
        if gathering is not None:
            gathering.extend(chosen)
        elif delay_ms > 0:
            self._gathering[delay_ms] = chosen
            loop.call_later(GATHERED_S, self._gathering.pop, delay_ms, None)
            self.spawn(self._remove(chosen, delay_ms + 1000 * GATHERED_S))
        else:
            self.spawn(self._remove(chosen, 0))

    def remove_now(self) -> None:
        """End all delays of `remove_later`: the disk needs the room. A fetch under way holds its files open."""
        self._gathering.clear()
        for wait in self._removals:
            if not wait.done():
                wait.set_result(None)

    async def _remove(self, paths: list[str], delay_ms: float) -> None:
        if delay_ms > 0:
            loop = asyncio.get_running_loop()
            wait: asyncio.Future[None] = loop.create_future()
            timer = loop.call_later(delay_ms / 1000, lambda: None if wait.done() else wait.set_result(None))
            self._removals.add(wait)
            try:
                await wait
            finally:
                timer.cancel()
                self._removals.discard(wait)
        for path in paths:
            try:
                await self.run(remove, path)
            except FileNotFoundError:
                continue
            except OSError as error:
                logger.error("%s cannot be removed: %s; the next start tries again", path, error.strerror)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine of the broker's own; an exception that it raises is logged."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def keep(self, task: asyncio.Future[Any]) -> None:
        """Keep a task whose caller does not await it any more, until it is done or the broker stops."""
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            name = getattr(task.get_coro(), "__qualname__", task.get_name())
            logger.error("the background task %s ended with an error: %s", name, error, exc_info=error)

    async def close(self) -> None:
        works = [*self._tasks, *self._kept]
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        self._fsync.shutdown(wait=True)
        self._files.shutdown(wait=True)
        self._codecs.shutdown(wait=True)
        self._reads.shutdown(wait=True)
        self._ahead.shutdown(wait=True)
