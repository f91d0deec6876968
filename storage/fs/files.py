"""The small file interface that all of storage uses: `OsFiles` here, `MemoryFiles` for tests.

A `File` is a name that is opened when it is needed. `OsFiles` keeps at most `limit` descriptors open, whatever the
number of partitions; a file whose descriptor was closed opens itself again at the next use. Descriptors that are held
(`File.hold`) stay open until they are released, and are the only ones that may push the number past the limit.

Errors are plain OSErrors. Nothing here is thread-safe, except `File.sync` of a file that is held.
"""

from __future__ import annotations

import os
import re
import sys
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gregor.storage.fs.cached_reads import Fetch, NotCached, read_cached
from gregor.storage.fs.disk_errors import NOT_OPENED

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

DEFAULT_OPEN_FILES = 1000
MIN_OPEN_FILES = 64
SECOND_CHANCES = 50
"""The number of files in use that are passed over for one that is not: to check thousands would cost milliseconds."""
DEFAULT_CACHED_BYTES = 16 * 1024 * 1024
REWRITTEN_BYTES = 1024 * 1024


class DirectoryEntry(NamedTuple):
    name: str
    is_directory: bool
    size_bytes: int
    """0 for a directory."""


class File(Protocol):
    """One file that is only ever appended to, truncated, and read."""

    path: str
    write: Callable[[ReadableBuffer], int]
    """Append at the end of the file, as write(2) does: it may write fewer bytes than it was given. A plain attribute,
    so that the append path reaches the system call without a Python frame in between; never keep a copy of it."""

    def fileno(self) -> int:
        """Return an open descriptor. Valid until the next use of any file, or until `release` after a `hold`."""

    def hold(self) -> int:
        """Open the file if need be and keep the descriptor open until as many `release`s; returns it."""

    def release(self) -> None: ...

    def read(self, size_bytes: int, position: int, waits_for_disk: bool = True) -> bytes:
        """Read as pread(2) does: fewer bytes only at the end of the file. Without `waits_for_disk`, on the
        event loop, NotCached is raised instead of a wait."""

    def fetcher(self, size_bytes: int, position: int) -> Callable[[], None]:
        """Return the call that `NotCached.fetcher` returns."""

    def read_into(self, view: WriteableBuffer, position: int) -> int: ...

    def reserve(self, position: int, size_bytes: int) -> bool:
        """Reserve room on the disk for bytes to come, without changing the size of the file; `truncate` frees what lies
        behind its end. False if there is no room."""

    def rewrite(self, start: int, end: int) -> None:
        """Write these bytes once more where they are: after a sync that failed the system considers them to be on the
        disk, and no other sync would write them again. May be called on any thread while the file is held."""

    def truncate(self, size_bytes: int) -> None: ...

    def size_bytes(self) -> int: ...

    def modified_ms(self) -> int: ...

    def identity(self) -> tuple[int, int, int]:
        """Return three numbers that identify this content of the file: they change when it is written to, truncated or
        renamed, no other file of this name has them, and they are the same after a restart."""

    def set_modified_ms(self, modified_ms: int) -> None: ...

    def sync(self) -> None:
        """fsync. May be called on any thread while the file is held."""

    def rename(self, path: str) -> None: ...

    def close(self) -> None:
        """Close the descriptor now (or, if it is held, at the last release); the file stays usable."""


class Files(Protocol):
    """The file system, as far as storage uses it. Paths are plain strings."""

    cache: ContentCache

    def create(self, path: str) -> File:
        """Create a new, empty file; an old one of that name is emptied."""

    def open(self, path: str) -> File:
        """Return a file that exists; no system call is made before its first use."""

    def exists(self, path: str) -> bool: ...

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        """List files and directories, in no order, without those that are removed meanwhile; FileNotFoundError when
        there is no such directory, or nothing where a link points to."""

    def make_directory(self, path: str) -> None:
        """Create a directory with its parents; no error when it exists."""

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomically(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Replace the whole file: after a crash it has the old content or the new, never a mixture. Without `sync` that
        holds for a crash of the process; for one of the machine only after `sync_file`."""

    def reserve(self, path: str, size_bytes: int) -> None:
        """Create a file that only occupies this much room; OSError, and no file, where there is less. May be called on
        any thread."""

    def sync_file(self, path: str) -> None:
        """Sync a file by its name. May be called on any thread."""

    def sync_directory(self, path: str) -> None:
        """Make the names in it durable: files created, renamed, removed. May be called on any thread."""

    def sync_everything(self, path: str) -> bool:
        """Make everything durable that was written to the file system of a directory: for thousands of files that is
        eight times as fast as one sync each. False where that is impossible, or would not report its errors."""

    def rename(self, source: str, target: str) -> None:
        """Rename a directory, or a file that is not open as a `File`."""

    def unlink(self, path: str) -> None:
        """Remove a file; no error when there is none. May be called on any thread."""

    def remove_directory(self, path: str) -> None:
        """Remove a directory with the files in it. May be called on any thread."""


class ContentCache:
    """Least-recently-used file contents that were read into memory whole (small sparse indexes).

    The cache only decides which owners must drop their content: `use` notes which one is in use and how large it is,
    and calls `drop` of those that no longer fit. An owner that drops its content by itself calls `forget`.
    """

    __slots__ = ("_drop_and_size", "_total_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int = DEFAULT_CACHED_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._total_bytes = 0
        self._drop_and_size: dict[object, tuple[Callable[[], None], int]] = {}

    def use(self, owner: object, size_bytes: int, drop: Callable[[], None]) -> None:
        entries = self._drop_and_size
        self._total_bytes += size_bytes - entries.pop(owner, (drop, 0))[1]
        entries[owner] = drop, size_bytes
        while self._total_bytes > self.limit_bytes and len(entries) > 1:
            oldest = next(iter(entries))
            drop_oldest, freed = entries.pop(oldest)
            self._total_bytes -= freed
            drop_oldest()

    def forget(self, owner: object) -> None:
        self._total_bytes -= self._drop_and_size.pop(owner, (None, 0))[1]


class OsFile:
    """A File of the operating system; made by OsFiles."""

    __slots__ = ("_close_at_release", "_fd", "_files", "_holds", "path", "used", "write")

    write: Callable[[ReadableBuffer], int]
    """Set while the file is open."""

    def __init__(self, files: OsFiles, path: str) -> None:
        self.path = path
        self.used = False
        self._files = files
        self._fd = -1
        self._holds = 0
        self._close_at_release = False

    def fileno(self) -> int:
        self.used = True
        return self._fd if self._fd >= 0 else self._open(os.O_RDWR | os.O_APPEND)

    def hold(self) -> int:
        descriptor = self.fileno()
        self._holds += 1
        return descriptor

    def release(self) -> None:
        self._holds -= 1
        if self._close_at_release and not self._holds:
            self.close()

    @property
    def is_open(self) -> bool:
        """Whether it has a descriptor at the moment."""
        return self._fd >= 0

    @property
    def held(self) -> bool:
        return self._holds > 0

    def spend_chance(self) -> None:
        """Note that the file stays open this time: it must be used again until the next time."""
        self.used = False

    def read(self, size_bytes: int, position: int, waits_for_disk: bool = True) -> bytes:
        if waits_for_disk:
            return os.pread(self.fileno(), size_bytes, position)
        try:
            return read_cached(self.fileno(), size_bytes, position)
        except BlockingIOError:
            raise NotCached(self, size_bytes, position) from None

    def fetcher(self, size_bytes: int, position: int) -> Callable[[], None]:
        return Fetch(self.fileno(), size_bytes, position)

    def read_into(self, view: WriteableBuffer, position: int) -> int:
        return os.preadv(self.fileno(), [view], position)

    def reserve(self, position: int, size_bytes: int) -> bool:
        from gregor.storage.fs.preallocation import reserve

        return reserve(self.fileno(), position, size_bytes)

    def rewrite(self, start: int, end: int) -> None:
        # With a descriptor of its own: that of the file appends, whatever the position.
        descriptor = os.open(self.path, os.O_WRONLY)
        try:
            while start < end:
                data = os.pread(self.fileno(), min(REWRITTEN_BYTES, end - start), start)
                if not data:
                    break
                start += os.pwrite(descriptor, data, start)
        finally:
            os.close(descriptor)

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self.fileno(), size_bytes)

    def size_bytes(self) -> int:
        return os.stat(self._fd if self._fd >= 0 else self.path).st_size

    def modified_ms(self) -> int:
        return os.stat(self._fd if self._fd >= 0 else self.path).st_mtime_ns // 1_000_000

    def identity(self) -> tuple[int, int, int]:
        found = os.stat(self._fd if self._fd >= 0 else self.path)
        return found.st_ino, found.st_size, found.st_ctime_ns

    def set_modified_ms(self, modified_ms: int) -> None:
        os.utime(self._fd if self._fd >= 0 else self.path, ns=(modified_ms * 1_000_000,) * 2)

    def sync(self) -> None:
        os.fsync(self.fileno())

    def rename(self, path: str) -> None:
        os.rename(self.path, path)
        self.path = path

    def close(self) -> None:
        if self._holds:
            self._close_at_release = True
        elif self._fd >= 0:
            descriptor, self._fd = self._fd, -1
            self._close_at_release = False
            del self.write
            self._files.closed(self)
            os.close(descriptor)

    def create(self) -> None:
        self._open(os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC)

    def _open(self, flags: int) -> int:
        files = self._files
        files.make_room()
        try:
            descriptor = os.open(self.path, flags, 0o644)
        except OSError as error:
            if error.errno not in NOT_OPENED:
                raise
            # Connections use descriptors that were meant for files: keep fewer files open from now on. One of them is
            # closed in any case, so that this file can be opened where another one is not held.
            open_count = files.open_count
            files.limit_open_files(max(MIN_OPEN_FILES, min(files.limit, open_count) * 3 // 4))
            files.make_room(open_count)
            descriptor = os.open(self.path, flags, 0o644)
        self._fd = descriptor
        self.write = partial(os.write, descriptor)
        self._files.opened(self)
        return descriptor

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[[ReadableBuffer], int]:
            """Return `write` of a file that is not open. As an attribute it would be a reference cycle, which keeps the
            file in memory when its segment is deleted (broker.jobs.gc_policy)."""
            if name != "write":
                raise AttributeError(name)
            return self._open_and_write

    def _open_and_write(self, data: ReadableBuffer) -> int:
        return os.write(self.fileno(), data)


class OsFiles:
    """Files of the operating system, with a bounded number of descriptors.

    The clock rule decides which descriptor is closed when there are too many: the one opened first, with a second
    chance for those that were used since the last check. (A strict LRU would cost every append a dictionary operation.
    `write` does not mark its file as used either: a busy file is read, too, or opened again.)
    """

    def __init__(self, limit: int = DEFAULT_OPEN_FILES, cached_bytes: int = DEFAULT_CACHED_BYTES) -> None:
        self.limit = limit
        self.cache = ContentCache(cached_bytes)
        self._open_files: OrderedDict[OsFile, None] = OrderedDict()

    @property
    def open_count(self) -> int:
        return len(self._open_files)

    def limit_open_files(self, limit: int) -> None:
        """Keep fewer descriptors open, or more, from now on. Closes what is beyond the limit, unless it is held."""
        self.limit = limit
        if self.open_count > limit:
            self.make_room()

    def create(self, path: str) -> OsFile:
        file = OsFile(self, path)
        file.create()
        return file

    def open(self, path: str) -> OsFile:
        return OsFile(self, path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        listed = []
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    is_directory = entry.is_dir()
                    size_bytes = 0 if is_directory else entry.stat().st_size
                except FileNotFoundError:
                    if entry.is_symlink():
                        raise
                    continue  # removed since the names were read
                listed.append(DirectoryEntry(entry.name, is_directory, size_bytes))
        return listed

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb", buffering=0) as file:
            return file.read()

    def write_atomically(self, path: str, data: bytes, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                if sync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
        except OSError:
            # On a full disk the incomplete file would occupy room that others may need.
            with suppress(OSError):
                os.unlink(temporary)
            raise
        if sync:
            self.sync_directory(os.path.dirname(path))

    def reserve(self, path: str, size_bytes: int) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, size_bytes)
            else:
                os.write(descriptor, bytes(size_bytes))
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)

    def sync_file(self, path: str) -> None:
        _sync_path(path)

    def sync_directory(self, path: str) -> None:
        _sync_path(path or ".")

    def sync_everything(self, path: str) -> bool:
        # Linux reports errors from 5.8 on: those of this call, and earlier ones that were not reported yet.
        if sys.platform != "linux" or _linux_release() < (5, 8):
            return False
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            if library.syncfs(descriptor):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), path)
        finally:
            os.close(descriptor)
        return True

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_directory(self, path: str) -> None:
        for entry in self.list_directory(path):
            if entry.is_directory:
                self.remove_directory(os.path.join(path, entry.name))
            else:
                self.unlink(os.path.join(path, entry.name))
        os.rmdir(path)

    # Called by OsFile

    def make_room(self, limit: int | None = None) -> None:
        """Close descriptors until one more is within the limit, or all that are left are held. `limit`: a lower one,
        for this time."""
        limit = self.limit if limit is None else min(limit, self.limit)
        queue = self._open_files
        chances = SECOND_CHANCES
        attempts = 2 * len(queue)
        while len(queue) >= limit and attempts:
            attempts -= 1
            file = next(iter(queue))
            if file.held or (file.used and chances):
                chances = max(0, chances - 1)
                file.spend_chance()
                queue.move_to_end(file)
            else:
                file.close()

    def opened(self, file: OsFile) -> None:
        self._open_files[file] = None

    def closed(self, file: OsFile) -> None:
        self._open_files.pop(file, None)


def _linux_release() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", os.uname().release)[:2])


def _sync_path(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
