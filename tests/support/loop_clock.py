"""Another clock for a loop of asyncio: a test has all its turns before a time is over, or does not wait until it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def standing_clock(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Let no time pass: what waits for its time ends when the clock runs again."""
    now_s = loop.time()
    with mock.patch.object(loop, "time", lambda: now_s):
        yield


@contextmanager
def clock_ahead(loop: asyncio.AbstractEventLoop, seconds: float) -> Iterator[None]:
    """Let it be later by some seconds."""
    time = loop.time
    with mock.patch.object(loop, "time", lambda: time() + seconds):
        yield
