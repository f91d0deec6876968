"""Runs long work on the event loop in turns (protocol.turns).

A request may be about tens of thousands of partitions, and many such requests may come at once: in each turn of the
loop only one of them proceeds, for TURN_S.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from gregor.broker.log import logger
from gregor.protocol.turns import TURN_S, after_call

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from gregor.protocol.turns import Call, Gate, Resume, Steps

ResultT = TypeVar("ResultT")


class LoopGate:
    """Lets one of the waiting pieces of work proceed in each turn of the loop, in order of arrival. Belongs to one
    loop. Implements protocol.turns.Gate."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._occupied = False
        """Whether a piece of work already proceeds in this turn of the loop; `_open` begins the next turn."""

    async def wait(self) -> None:
        """Wait for the next turn of the caller's work."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        self._occupy(loop)
        await turn

    async def _enter(self) -> None:
        """As `wait`, but begin at once if no other work proceeds in this turn of the loop."""
        if self._occupied:
            await self.wait()
        else:
            self._occupy(asyncio.get_running_loop())

    def _occupy(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._occupied:
            self._occupied = True
            loop.call_soon(self._open, loop)

    def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._occupied = False
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else it was cancelled
                turn.set_result(None)
                self._occupy(loop)
                break

    def turns(self) -> LoopTurns:
        """Return the turns of one piece of work, which begins now."""
        return LoopTurns(self)

    def start(self, steps: Steps[ResultT], threads: Executor | None = None) -> ResultT | Awaitable[ResultT]:
        """Run steps for one turn, at once. Returns the result, or an awaitable of it if there are more steps or a call,
        which is made on one of `threads`."""
        until_s = self.clock() + TURN_S
        call = None
        try:
            while call is None:
                call = next(steps)
                if self.clock() > until_s:
                    break
        except StopIteration as end:
            result: ResultT = end.value
            return result
        return _Rest(self, steps, call, threads)

    async def run(self, steps: Steps[ResultT], threads: Executor | None = None) -> ResultT:
        """Run all steps; begins at once if no other work proceeds in this turn of the loop. After more than a turn,
        other work proceeds before the caller does. If the caller is cancelled, the steps are closed at once."""
        try:
            await self._enter()
            begun = self.start(steps, threads)
            return await begun if isinstance(begun, _Rest) else begun  # type: ignore[return-value]
        finally:
            steps.close()

    async def run_rest(self, steps: Steps[ResultT], call: Call | None, threads: Executor | None) -> ResultT:
        """Run the steps that follow the first turn, which ended with `call`, if with any."""
        long = False
        try:
            while True:
                resume: Resume = partial(next, steps)
                if call is not None:
                    done = asyncio.get_running_loop().run_in_executor(threads, call)
                    await asyncio.wait((done,))
                    resume = after_call(steps, done.result)
                if call is None:
                    long = True
                    await self.wait()
                else:
                    await self._enter()
                until_s = self.clock() + TURN_S
                call = resume()
                while call is None and self.clock() <= until_s:
                    call = next(steps)
        except StopIteration as end:
            if long:
                await self.wait()
            result: ResultT = end.value
            return result
        finally:
            steps.close()


class _Rest(Awaitable[ResultT]):
    """Begins when it is awaited; unlike a coroutine, it need not be closed if it never is."""

    __slots__ = ("_call", "_gate", "_steps", "_threads")

    def __init__(self, gate: LoopGate, steps: Steps[ResultT], call: Call | None, threads: Executor | None) -> None:
        self._gate = gate
        self._steps = steps
        self._call = call
        self._threads = threads

    def __await__(self) -> Generator[Any, None, ResultT]:
        return self._gate.run_rest(self._steps, self._call, self._threads).__await__()


class LoopTurns:
    """For a loop of many short steps in a coroutine: `await turns.next()` between two of them."""

    __slots__ = ("_gate", "_until_s")

    def __init__(self, gate: LoopGate) -> None:
        self._gate = gate
        self._until_s = gate.clock() + TURN_S

    async def next(self) -> None:
        gate = self._gate
        if gate.clock() > self._until_s:
            await gate.wait()
            self._until_s = gate.clock() + TURN_S


class TurnQueue:
    """Short pieces of work, of which many may come at once: done in order of arrival from the next turn of the loop on,
    for TURN_S in each turn; those that are left go through the gate."""

    __slots__ = ("_at_once", "_gate", "_loop", "_spawn", "waiting")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        gate: Gate,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        *,
        at_once: int = 1,
    ) -> None:
        """`spawn` runs a coroutine as a task of the broker. `at_once` of them are done before the clock is read
        again."""
        self._loop = loop
        self._gate = gate
        self._spawn = spawn
        self._at_once = at_once
        self.waiting: deque[Callable[[], object]] = deque()
        """Those that are not done, also the one that is being done."""

    def add(self, work: Callable[[], object]) -> None:
        """Call `work` in its turn."""
        self.waiting.append(work)
        if len(self.waiting) == 1:
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._do_first()
        if self.waiting:
            rest = self._gate.start(self._steps())
            if rest is not None:
                self._spawn(_finish(rest))

    def _steps(self) -> Steps[None]:
        waiting = self.waiting
        done = 0
        while waiting:
            self._do_first()
            done += 1
            if waiting and not done % self._at_once:
                yield None

    def _do_first(self) -> None:
        waiting = self.waiting
        try:
            waiting[0]()
        except Exception:
            logger.exception("a piece of work that waited for its turn failed")
        waiting.popleft()


async def _finish(rest: Awaitable[None]) -> None:
    await rest
