"""Finds out which bytes of a file are in the page cache, for calls that have no option not to wait.

Linux has the system call for it from 6.5 on (cachestat), and Python has none of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

from gregor.storage.fs.cached_reads import read_cached

CacheProbe = Callable[[int, int, int], bool]
"""(descriptor, position, size in bytes): whether all these bytes of the file are in the page cache."""

_CACHESTAT = 451
"""Its number on all architectures that Linux has but Alpha."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


@cache
def cache_probe() -> CacheProbe | None:
    """Return the probe, or None where the system has none. It loads ctypes, some megabytes: call it when needed."""
    try:
        probe = _probe()
        return probe if _works(probe) else None
    except (ImportError, OSError, AttributeError):
        return None


def _probe() -> CacheProbe:
    """Raises ImportError, OSError or AttributeError where the system lacks a part of it."""
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
        last = position + size_bytes - 1
        if found[0] < last // _PAGE_BYTES - position // _PAGE_BYTES + 1:
            return False
        # The count includes pages that the kernel still reads; it fills them in order, so the last one shows it.
        try:
            return len(read_cached(descriptor, 1, last)) == 1
        except OSError:
            return False

    return is_cached


def _works(probe: CacheProbe) -> bool:
    """Try it on a file in memory, which any user owns: the system call is refused for files of others."""
    descriptor = os.memfd_create("gregor-page-cache")
    try:
        os.write(descriptor, b"x")
        return probe(descriptor, 0, 1)
    finally:
        os.close(descriptor)
