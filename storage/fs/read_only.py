"""The files of a data folder, for reading only: nothing is ever written, and read permission is enough."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from gregor.storage.fs.files import OsFile, OsFiles

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def _refused(path: str) -> OSError:
    return OSError(errno.EROFS, "opened for reading only", path)


class ReadOnlyFile(OsFile):
    """Made by ReadOnlyFiles."""

    __slots__ = ()

    def fileno(self) -> int:
        self.used = True
        return self._fd if self._fd >= 0 else self._open(os.O_RDONLY)

    def create(self) -> None:
        raise _refused(self.path)

    def truncate(self, size_bytes: int) -> None:
        raise _refused(self.path)

    def rename(self, path: str) -> None:
        raise _refused(self.path)

    def _open_and_write(self, data: ReadableBuffer) -> int:
        raise _refused(self.path)


class ReadOnlyFiles(OsFiles):
    """Every call that would change something raises OSError (EROFS)."""

    def create(self, path: str) -> OsFile:
        raise _refused(path)

    def open(self, path: str) -> OsFile:
        return ReadOnlyFile(self, path)

    def make_directory(self, path: str) -> None:
        raise _refused(path)

    def write_atomically(self, path: str, data: bytes, *, sync: bool = True) -> None:
        raise _refused(path)

    def rename(self, source: str, target: str) -> None:
        raise _refused(source)

    def unlink(self, path: str) -> None:
        raise _refused(path)

    def remove_directory(self, path: str) -> None:
        raise _refused(path)
