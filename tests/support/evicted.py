"""Files on the disk alone: their pages are evicted from memory."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

_CACHESTAT = 451
_libc = ctypes.CDLL(None, use_errno=True)


def cached_pages(descriptor: int) -> int | None:
    """Return how many pages of a file are in memory, by cachestat(2); None if the kernel has no such call. (A read that
    must not wait shows it, too, but where it is refused Linux begins to read all the same.)"""
    everything = (ctypes.c_uint64 * 2)(0, 0)
    counts = (ctypes.c_uint64 * 5)()
    if _libc.syscall(_CACHESTAT, descriptor, ctypes.byref(everything), ctypes.byref(counts), 0):
        return None
    return counts[0]


def evict(path: Path | str, patience_s: float = 2.0) -> bool:
    """Return False if the pages cannot be evicted (tmpfs), or their number is unknown."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        end = time.monotonic() + patience_s
        while True:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            left = cached_pages(descriptor)
            if not left or time.monotonic() > end:
                return left == 0
            time.sleep(0.005)  # pages that are being written, or are on another processor's list
    finally:
        os.close(descriptor)


def evict_all(folder: Path) -> bool:
    """All files of a folder that have bytes."""
    return all(evict(path) for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
