"""A function that is called all along, beside a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(action: Callable[[], object], pause_s: float) -> Iterator[None]:
    """Call the function on a thread, with pauses, until the block ends."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(pause_s):
            action()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
