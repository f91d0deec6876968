"""`.lock` of a data folder: one broker at a time, whether gregor or Apache Kafka."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys

LOCK_FILE = ".lock"


class FolderInUse(Exception):
    """Another process (or another broker in this one) uses the data folder; `str()` names the folder."""


class FolderLock:
    """Held from construction until `release`, or until the process ends in any way.

    Java uses POSIX record locks (fcntl). Linux's open-file-description locks conflict with those and also between two
    holders in one process, which POSIX locks do not. Elsewhere (BSD, macOS) flock does both.
    """

    def __init__(self, folder: str) -> None:
        """Raise FolderInUse at once rather than wait, and OSError when the file cannot be made."""
        self._fd = os.open(os.path.join(folder, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(self._fd)
        except OSError as error:
            os.close(self._fd)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise FolderInUse(
                f"{folder} is locked by another process: stop the broker that uses it, or let log.dirs name another "
                f"folder"
            ) from None

    @property
    def descriptor(self) -> int:
        """The descriptor of the lock: a process that inherits it continues to hold the lock."""
        return self._fd

    def release(self) -> None:
        """Release the lock. The file stays, as Kafka leaves it: unlinking it could break the lock of the next
        holder."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _lock(fd: int) -> None:
    if sys.platform == "linux":
        # struct flock: type, whence, start, length 0 = whole file, pid (must be 0), with native alignment.
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    else:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(folder: str) -> bool:
    """Return whether a broker uses the folder. No file is created, and none is locked."""
    try:
        fd = os.open(os.path.join(folder, LOCK_FILE), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        if sys.platform == "linux":
            wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, wanted)
            return bool(struct.unpack("hhqqi4x", answer)[0] != fcntl.F_UNLCK)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        return False
    finally:
        os.close(fd)
