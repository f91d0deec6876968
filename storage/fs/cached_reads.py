"""Reads that do not wait for the disk: they return what is in the page cache, or name what is missing.

The event loop must not wait, so it passes `waits_for_disk=False` to what it reads. A read that would wait then raises
NotCached; a thread fetches the bytes that it names, and the loop repeats the read. Linux reports what is not in memory
(RWF_NOWAIT) on the file systems that matter; where it does not, a read waits.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


class Fetchable(Protocol):
    """A file whose bytes can be brought into memory (a File is one)."""

    @property
    def path(self) -> str: ...

    def fetcher(self, size_bytes: int, position: int) -> Callable[[], None]:
        """Return a call for a thread, which reads these bytes."""


class NotCached(Exception):
    """Some bytes of a file are not in memory. Not an OSError: nothing has failed."""

    def __init__(self, file: Fetchable, size_bytes: int, position: int) -> None:
        super().__init__(f"{size_bytes} bytes of {file.path} at {position} are not in memory")
        self._file = file
        self._size_bytes = size_bytes
        self._position = position

    def fetcher(self) -> Callable[[], None]:
        """Return a call for a thread, which brings the bytes into memory. It duplicates the descriptor at once, so
        OSError is raised here if the file is gone; the call itself raises none."""
        return self._file.fetcher(self._size_bytes, self._position)


def read_cached(descriptor: int, size_bytes: int, position: int) -> bytes:
    """Read as pread does: fewer bytes only at the end of the file. BlockingIOError if not all of them are in the page
    cache."""
    if not _NOWAIT:
        return os.pread(descriptor, size_bytes, position)
    view = memoryview(bytearray(size_bytes))
    got = 0
    while got < size_bytes:
        try:
            count = os.preadv(descriptor, [view[got:]], position + got, _NOWAIT)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return os.pread(descriptor, size_bytes, position)  # the file system does not know RWF_NOWAIT
        if not count:
            break
        got += count  # fewer than wanted: the rest is not in memory, or beyond the end
    return bytes(view[:got])


class Fetch:
    """A call for a thread: the kernel reads what is not in memory. It owns a descriptor, whether it is made or not."""

    __slots__ = ("_descriptor", "_position", "_size_bytes")

    def __init__(self, descriptor: int, size_bytes: int, position: int) -> None:
        self._descriptor = -1  # for __del__, if dup fails
        self._descriptor = os.dup(descriptor)
        self._size_bytes = size_bytes
        self._position = position

    def __call__(self) -> None:
        with suppress(OSError):  # the read that follows raises it again
            os.pread(self._descriptor, self._size_bytes, self._position)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
