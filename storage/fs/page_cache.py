"""Finds out which bytes of a file are in the page cache, for calls that have no option not to wait.

Linux has the system call for it from 6.5 on (cachestat), and Python has none of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache

CacheProbe = Callable[[int, int, int], bool]
"""(descriptor, position, size in bytes): whether all these bytes of the file are in the page cache."""

_CACHESTAT = 451
"""Its number on all architectures that Linux has but Alpha."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


@cache
def cache_probe() -> CacheProbe | None:
    """The probe, or None where the system has none. Loads ctypes, some megabytes: call it when it is needed."""
    if sys.platform != "linux":
        return None
    import ctypes

    system_call = ctypes.CDLL(None, use_errno=True).syscall
    system_call.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
    # struct cachestat_range: position and size in bytes; struct cachestat: cached pages, then four other counts.
    wanted = (ctypes.c_uint64 * 2)()
    found = (ctypes.c_uint64 * 5)()
    wanted_at, found_at = ctypes.addressof(wanted), ctypes.addressof(found)

    def is_cached(descriptor: int, position: int, size_bytes: int) -> bool:
        wanted[0], wanted[1] = position, size_bytes
        if system_call(_CACHESTAT, descriptor, wanted_at, found_at, 0):
            return False
        pages = (position + size_bytes - 1) // _PAGE_BYTES - position // _PAGE_BYTES + 1
        return int(found[0]) >= pages

    descriptor = os.open(__file__, os.O_RDONLY)
    try:
        os.pread(descriptor, 1, 0)
        return is_cached if is_cached(descriptor, 0, 1) else None
    finally:
        os.close(descriptor)
