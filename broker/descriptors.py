"""How many file descriptors the process may have, and how many of them storage keeps open.

A broker has one for each connection, and for each file that it wrote or read lately: with 10,000 partitions there are
30,000 files, of which storage keeps as many open as fit (storage.files).
"""

from __future__ import annotations

import sys

from storage.files import FEWEST_OPEN_FILES

MOST_OPEN_FILES = 3000
"""With 1000 connections that is within a limit of 4096."""
_WANTED = 65_536


def raise_limit() -> None:
    """Lift the soft limit of descriptors (`ulimit -n`, often 1024) as far as the hard one lets us, as the JVM does."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_files_limit() -> int:
    """How many files storage may keep open: at most three quarters of what the process may have."""
    if sys.platform == "win32":
        return FEWEST_OPEN_FILES
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_OPEN_FILES if soft == resource.RLIM_INFINITY else open_files_within(soft)


def open_files_within(limit: int) -> int:
    """Of so many descriptors."""
    return max(FEWEST_OPEN_FILES, min(MOST_OPEN_FILES, limit * 3 // 4))
