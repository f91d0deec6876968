"""Long work in slices, for whoever must not be held up by it.

A generator of such work yields None after each slice of about half a millisecond, or a call that need not be made on
the caller's thread because it releases the GIL (a codec on much data); what comes of the call, an error too, is sent
back in.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")

Call = Callable[[], Any]
Slices = Generator[Call | None, Any, ResultT]
GoOn = Callable[[], Call | None]

RECORDS_PER_SLICE = 64
"""Reading one record and writing it in another format takes up to 8 us."""
BYTES_PER_SLICE = 256 * 1024
"""So many bytes are copied and summed up in some 0.2 ms."""


def run_slices(slices: Slices[ResultT]) -> ResultT:
    """All of it here and now."""
    go_on: GoOn = partial(next, slices)
    while True:
        try:
            call = go_on()
        except StopIteration as end:
            result: ResultT = end.value
            return result
        go_on = partial(next, slices) if call is None else after_call(slices, call)


def after_call(slices: Slices[ResultT], call: Call) -> GoOn:
    """Make the call that a slice ended with; returns how to go on with what came of it, an error too."""
    try:
        return partial(slices.send, call())
    except Exception as error:
        return partial(slices.throw, error)
