"""Long work on an event loop in short steps, so that other work can proceed in between.

Long work is a generator. It yields None after each short step, or a call that need not be made on the loop's thread
because it releases the GIL or waits for a disk; the outcome of the call, an error too, is sent back in. A clock decides
how many steps proceed in one turn of the loop: as many as fit into TURN_S. The Gate of the broker, which runs the steps
on the event loop, is described here as a protocol, because storage, coordinator and replication have no event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any, NoReturn, Protocol, TypeVar

TURN_S = 0.001
"""The time for which one piece of work keeps the loop; the loop lag must never reach 10 ms."""

ITEMS_PER_STEP = 64
"""The size of one step, in records, partitions or logs, whose handling lasts about as long as a yield and a read of the
clock (0.2 us). 64 of the most expensive ones (the conversion of a record lasts up to 8 us) are half a turn."""
BYTES_PER_STEP = 256 * 1024
"""A copy or a checksum cannot be interrupted; one of this size lasts some 0.2 ms."""

ItemT = TypeVar("ItemT")
KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")
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


class WalkableDict(dict[KeyT, ValueT]):
    """A dict whose entries are visited in short steps while entries are added and removed.

    A copy of thousands of entries, such as list(logs.values()), counts a reference in each key and value, and so
    touches the memory of all of them in one step: 12 to 60 ms for 10,000 partitions on a virtual machine that had not
    used that memory for a second, measured. Here an entry is touched when its turn comes.

    Reads cost what those of a dict cost. `changes` counts the entries that were set and removed.
    """

    __slots__ = ("_keys", "_removed", "changes")

    def __init__(self, entries: Iterable[tuple[KeyT, ValueT]] = ()) -> None:
        super().__init__()
        self._keys: list[KeyT] = []
        """In the order in which they were added; some of them are there no more, or twice, if any was `_removed`."""
        self._removed = False
        self.changes = 0
        for key, value in entries:
            self[key] = value

    def __setitem__(self, key: KeyT, value: ValueT) -> None:
        if key not in self:
            self._keys.append(key)
        super().__setitem__(key, value)
        self.changes += 1

    def __delitem__(self, key: KeyT) -> None:
        super().__delitem__(key)
        self._removed = True
        self.changes += 1

    def _refuse(self, *_args: object, **_more: object) -> NoReturn:
        """Raise TypeError: entries are set by `[key] = value` and removed by `del`, which note it."""
        raise TypeError("a WalkableDict is changed by [key] = value and by del alone")

    pop = popitem = clear = update = setdefault = __ior__ = _refuse

    def walk(self) -> Iterator[tuple[KeyT, ValueT]]:
        """Yield the entries of the keys that the dict has now, each with the value that it has in its turn; a key that
        was removed before its turn is left out. After a removal the next walk begins with a copy of the keys."""
        keys = self._present_keys()
        for index in range(len(keys)):
            key = keys[index]
            if key in self:
                yield key, self[key]

    def walk_blocks(self, size: int) -> Iterator[list[ValueT]]:
        """Yield the values of the same entries, in blocks of at most `size`."""
        keys = self._present_keys()
        end = len(keys)
        for first in range(0, end, size):
            if block := [self[key] for key in keys[first : min(first + size, end)] if key in self]:
                yield block

    def _present_keys(self) -> list[KeyT]:
        """Return a list of the keys that the dict has now, which grows by those that are added later."""
        if self._removed:
            self._keys = list(self)
            self._removed = False
        return self._keys
