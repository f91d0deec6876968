"""Long work on an event loop in short steps, so that other work can proceed in between.

Long work is a generator. It yields None after each short step, or a call that need not be made on the loop's thread
because it releases the GIL or waits for a disk; the outcome of the call, an error too, is sent back in. A clock decides
how many steps proceed in one turn of the loop: as many as fit into TURN_S. The Gate of the broker, which runs the steps
on the event loop, is described here as a protocol, because storage, coordinator and replication have no event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable
from functools import partial
from typing import Any, Protocol, TypeVar

TURN_S = 0.001
"""The time for which one piece of work keeps the loop; the loop lag must never reach 10 ms."""

ITEMS_PER_STEP = 64
"""The size of one step, in records, partitions or logs, whose handling lasts about as long as a yield and a read of the
clock (0.2 us). 64 of the most expensive ones (the conversion of a record lasts up to 8 us) are half a turn."""
BYTES_PER_STEP = 256 * 1024
"""A copy or a checksum cannot be interrupted; one of this size lasts some 0.2 ms."""

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

Call = Callable[[], Any]
Steps = Generator[Call | None, Any, ResultT]
Resume = Callable[[], Call | None]


class Turns(Protocol):
    """The turns of one piece of work that is a coroutine of many short steps."""

    async def next(self) -> None:
        """Let other work proceed if this turn is used up."""


class Gate(Protocol):
    """Shares an event loop among long work: one piece of work proceeds in each turn of the loop, for TURN_S."""

    def turns(self) -> Turns:
        """Return the turns of one piece of work, which begins now."""

    def start(self, steps: Steps[ResultT]) -> ResultT | Awaitable[ResultT]:
        """Run steps for one turn, at once; return the result, or an awaitable of it if there are more steps."""

    async def run(self, steps: Steps[ResultT]) -> ResultT:
        """Run all steps. After more than a turn, other work proceeds before the caller does. If the caller is
        cancelled, the steps are closed at once."""


def run_all(steps: Steps[ResultT]) -> ResultT:
    """Run all steps, and their calls, at once."""
    resume: Resume = partial(next, steps)
    while True:
        try:
            call = resume()
        except StopIteration as end:
            result: ResultT = end.value
            return result
        resume = partial(next, steps) if call is None else after_call(steps, call)


def after_call(steps: Steps[ResultT], call: Call) -> Resume:
    """Make the call that a step ended with; return the function that resumes the steps with its outcome."""
    try:
        return partial(steps.send, call())
    except Exception as error:
        return partial(steps.throw, error)


def collect(items: Iterable[ItemT]) -> Steps[list[ItemT]]:
    """Drain an iterator that does work for each of its items."""
    collected = []
    for item in items:
        collected.append(item)
        yield None
    return collected
