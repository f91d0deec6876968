"""Long work in slices, for whoever must not be held up by it.

A generator of such work yields None after each slice of about half a millisecond, or a call that need not be made on
the caller's thread because it releases the GIL (a codec on much data); what the call returns is sent back in.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

ResultT = TypeVar("ResultT")

Call = Callable[[], bytes]
Slices = Generator[Call | None, bytes | None, ResultT]

RECORDS_PER_SLICE = 64
"""Reading one record and writing it in another format takes up to 8 us."""


def run_slices(slices: Slices[ResultT]) -> ResultT:
    """All of it here and now."""
    done: bytes | None = None
    while True:
        try:
            call = slices.send(done)
        except StopIteration as end:
            result: ResultT = end.value
            return result
        done = None if call is None else call()


def elsewhere(call: Call) -> Generator[Call | None, bytes | None, bytes]:
    """For `yield from`: have the call made, and get its result."""
    result = yield call
    assert result is not None, "the result of a call is to be sent back in"
    return result
