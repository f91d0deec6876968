"""The limit of file descriptors of the process, and the share of them that storage keeps open.

A broker has one for each connection, and for each file that it has written or read lately: with 10,000 partitions there
are 30,000 files, of which storage keeps as many open as fit (gregor.storage.fs.files)."""

from __future__ import annotations

import sys

from gregor.storage.fs.files import MIN_OPEN_FILES, OsFiles

MAX_OPEN_FILES = 30_000
"""The files of 10,000 partitions, where the process may have as many: to open a file for each append costs a third of a
produce request (docs/architecture/decisions.md). An open file costs the kernel some 250 bytes."""
_WANTED = 65_536
_SPARE = 200
"""Left for other uses, and for connections that come before storage has closed some files."""


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
    """Return how many files storage may keep open: at most three quarters of the process's descriptors."""
    return open_files_within(_soft_limit())


def open_files_within(limit: int) -> int:
    """Return how many files storage may keep open if the process has this limit of descriptors."""
    return max(MIN_OPEN_FILES, min(MAX_OPEN_FILES, limit * 3 // 4))


class Share:
    """Lowers storage's share of the descriptors while there are many connections, and raises it again later."""

    def __init__(self, files: OsFiles) -> None:
        self._files = files
        self._most = files.limit
        self._limit = _soft_limit()

    def connections(self, count: int) -> None:
        """Fit storage's share to this number of open connections: each beyond the spare ones closes a file."""
        limit = max(MIN_OPEN_FILES, min(self._most, self._limit - _SPARE - count))
        self._files.limit_open_files(limit)


def _soft_limit() -> int:
    if sys.platform == "win32":
        return 2 * MAX_OPEN_FILES
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _WANTED if soft == resource.RLIM_INFINITY else soft
