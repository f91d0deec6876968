"""Long work on the loop in short pieces, with a turn for everybody else in between.

A request may be about tens of thousands of things, and many such requests may come at once: in each turn of the loop
only one of them goes on, for TURN_S.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Generator
from typing import Any, TypeVar

TURN_S = 0.001

ResultT = TypeVar("ResultT")


class Gate:
    """Lets one of those who wait go on in each turn of the loop, in the order they came. Belongs to one loop."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._scheduled = False

    async def passed(self) -> None:
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._open, loop)
        await turn

    def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # cancelled: its client has left
                turn.set_result(None)
                break
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            loop.call_soon(self._open, loop)

    def turns(self) -> Turns:
        """For one work, which begins now."""
        return Turns(self)

    def take(self, steps: Generator[None, None, ResultT]) -> ResultT | Awaitable[ResultT]:
        """The result of work that yields after each short step; if it takes longer than a turn, an awaitable of it."""
        until_s = time.monotonic() + TURN_S
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: ResultT = end.value
                return result
            if time.monotonic() > until_s:
                return _Rest(self, steps)

    async def finish_rest(self, steps: Generator[None, None, ResultT]) -> ResultT:
        try:
            while True:
                await self.passed()
                until_s = time.monotonic() + TURN_S
                next(steps)
                while time.monotonic() <= until_s:
                    next(steps)
        except StopIteration as end:
            result: ResultT = end.value
            return result


class _Rest(Awaitable[ResultT]):
    """Begins when it is awaited; who never comes to that need not close it, as he would a coroutine."""

    __slots__ = ("_gate", "_steps")

    def __init__(self, gate: Gate, steps: Generator[None, None, ResultT]) -> None:
        self._gate = gate
        self._steps = steps

    def __await__(self) -> Generator[Any, None, ResultT]:
        return self._gate.finish_rest(self._steps).__await__()


class Turns:
    """For a loop of many short steps in a coroutine: `await turns.next()` between two of them."""

    __slots__ = ("_gate", "_until_s")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._until_s = time.monotonic() + TURN_S

    async def next(self) -> None:
        if time.monotonic() > self._until_s:
            await self._gate.passed()
            self._until_s = time.monotonic() + TURN_S
