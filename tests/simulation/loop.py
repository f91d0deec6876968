"""An event loop in virtual time: one thread, no sockets, no sleeps; when all tasks wait, time jumps to the next timer.

Each simulated process owns what it started (by a context variable, which tasks and timers inherit). So a process can be
killed between any two steps, as by kill -9: nothing of it runs any more, not even `finally`. It can also be frozen, as
by SIGSTOP: its due steps run when it is resumed.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from itertools import count
from typing import Any, cast


class Process:
    """Tasks and timers that are killed or frozen together. A killed one never comes back; its next life is another."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.held: list[_Step] = []
        self.clock_ahead_ms = 0
        """The difference of its wall clock from the true time."""
        self.context: Context = copy_context()
        self.context.run(_OWNER.set, self)

    def __repr__(self) -> str:
        return self.name


def owner() -> Process | None:
    """Return the process to which the present step belongs."""
    return _OWNER.get()


_OWNER: ContextVar[Process | None] = ContextVar("owner", default=None)


Connector = Callable[[Process, Callable[[], Any], str], Coroutine[Any, Any, tuple[Any, Any]]]


class Stuck(Exception):
    """No step is left to run, or far too many steps run without time passing."""


MAX_STEPS_AT_ONCE = 200_000


class _Step(list[Any]):
    """The callback, arguments and context of a call that is due, in place of asyncio's handles; empty once it is
    cancelled. A list, because a run makes thousands, and a list is filled and emptied without Python code."""

    __slots__ = ()

    cancel = list.clear

    def cancelled(self) -> bool:
        return not self


class VirtualLoop(asyncio.AbstractEventLoop):
    """`problems` collects exceptions that no task caught."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.connector: Connector | None = None
        """Makes connections."""
        self.steps = 0
        self.nobodys: Context = copy_context()
        """The context of calls that belong to no process, and also run when all of them are dead."""
        self._now_s = 0.0
        self._steps_now = 0
        """Since time has passed last."""
        self._ready: deque[_Step] = deque()
        self._timers: list[tuple[float, int, _Step]] = []
        self._numbers = count()
        self._dropped: list[_Step] = []
        """Steps of the dead, kept to the end: with its last step a task would go, and its `finally` parts run."""
        self._disturbed = False
        """Some process is, or was, not running: the owner of each step counts."""

    # -- processes -------------------------------------------------------------------------------------------------

    def kill(self, process: Process) -> None:
        process.alive = False
        self._dropped += process.held
        process.held = []
        self._disturbed = True

    def freeze(self, process: Process) -> None:
        process.frozen = True
        self._disturbed = True

    def thaw(self, process: Process) -> None:
        process.frozen = False
        self._ready.extend(process.held)
        process.held.clear()

    def spawn(self, process: Process, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return self.create_task(coroutine, name=name, context=process.context)

    # -- running ---------------------------------------------------------------------------------------------------

    def run_for(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Run for a time, or until `until` holds, which is called whenever time passes. Return whether it does."""
        end_s = self._now_s + seconds
        ready, timers = self._ready, self._timers
        asyncio._set_running_loop(self)
        try:
            while True:
                self._run_ready()
                if until is not None and until():
                    return True
                next_s = timers[0][0] if timers else math.inf
                passed_s = min(next_s, end_s)
                if passed_s > self._now_s:
                    self._now_s, self._steps_now = passed_s, 0
                if next_s > end_s:
                    return False
                while timers and timers[0][0] <= self._now_s:
                    ready.append(heappop(timers)[2])
        finally:
            asyncio._set_running_loop(None)

    def _run_ready(self) -> None:
        ready, steps = self._ready, self._steps_now
        while ready:
            step = ready.popleft()
            if not step:
                continue  # it was cancelled
            callback, args, context = step
            if self._disturbed:
                owner = context.get(_OWNER)
                if owner is not None:
                    if not owner.alive:
                        self._dropped.append(step)
                        continue
                    if owner.frozen:
                        owner.held.append(step)
                        continue
            try:
                context.run(callback, *args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.problems.append(f"Exception in callback {callback!r}: {error!r}")
            steps += 1
            if steps > MAX_STEPS_AT_ONCE:
                raise Stuck(f"{steps} steps at {self._now_s:.3f} s, the last: {callback!r}")
        self.steps += steps - self._steps_now
        self._steps_now = steps

    def dispose(self) -> None:
        """Forget all tasks without a warning: those of the dead never end, and no task waits for the others."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            with suppress(RuntimeError):
                coroutine.close()
        self._ready.clear()
        self._timers.clear()
        self._dropped.clear()

    # -- the interface of event loops, as far as asyncio's own parts use it --------------------------------------------

    def time(self) -> float:
        return self._now_s

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        step = _Step((callback, args, copy_context() if context is None else context))
        self._ready.append(step)
        return cast("asyncio.Handle", step)

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        step = _Step((callback, args, copy_context() if context is None else context))
        heappush(self._timers, (self._now_s + delay, next(self._numbers), step))
        return cast("asyncio.TimerHandle", step)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        step = _Step((callback, args, copy_context() if context is None else context))
        heappush(self._timers, (when, next(self._numbers), step))
        return cast("asyncio.TimerHandle", step)

    def create_future(self) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.Future(loop=self)
        future.owner = _OWNER.get()  # type: ignore[attr-defined]
        return future

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        task.owner = _OWNER.get() if context is None else context.get(_OWNER)  # type: ignore[attr-defined]
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Done at once: a thread would bring a clock of its own."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        future: Any = context.get("future") or context.get("task")
        process: Process | None = getattr(future, "owner", None)
        if process is not None and not process.alive:
            return  # the task that waited for it is dead
        error = context.get("exception")
        self.problems.append(f"{context.get('message')}: {error!r}")

    async def create_connection(self, factory: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]:  # type: ignore[override]
        process = owner()
        assert process is not None and self.connector is not None
        return await self.connector(process, factory, host)

    # A type in place of a method, hence the ignored assignment: each future and each task calls it without Python code.
    get_debug = bool  # type: ignore[assignment]

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False
