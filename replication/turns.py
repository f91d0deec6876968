"""Long work on the loop, with a turn for everybody else from time to time."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TypeVar

# So long the loop may be kept from other work: less than the 10 ms it must never stall.
TURN_S = 0.002

ResultT = TypeVar("ResultT")


class NextTurn:
    """Awaiting it lets the loop serve everybody else once."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Turns:
    """For a loop of many short steps: `await turns.next()` between two of them."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = time.monotonic() + TURN_S

    async def next(self) -> None:
        if time.monotonic() > self._until:
            await NextTurn()
            self._until = time.monotonic() + TURN_S


def first_turn(steps: Generator[None, None, object]) -> bool:
    """Take steps for one turn, at once; whether these were all. Else the rest may go on `in_turns`."""
    until = time.monotonic() + TURN_S
    return all(time.monotonic() <= until for _ in steps)


async def in_turns(steps: Generator[None, None, ResultT]) -> ResultT:
    """Take all steps; the result of the last one. After long work others have a turn before the caller goes on. If it
    is cancelled, the steps are closed at once."""
    until = time.monotonic() + TURN_S
    long = False
    try:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                if long:
                    await NextTurn()
                result: ResultT = end.value
                return result
            if time.monotonic() > until:
                long = True
                await NextTurn()
                until = time.monotonic() + TURN_S
    finally:
        steps.close()
