"""Files in memory for tests: every call can be made to fail, and a crash loses what was not made durable.

The rules of durability are those of POSIX in their strictest reading: a file's bytes survive once it was synced, its
name (and a rename, and an unlink) once its directory was synced. Real file systems are kinder.
"""

from __future__ import annotations

import errno
import os
import posixpath
import threading
from collections import Counter
from collections.abc import Callable
from functools import lru_cache, wraps
from itertools import count
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from gregor.storage.fs.cached_reads import NotCached
from gregor.storage.fs.files import ContentCache, DirectoryEntry

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


ArgsT = ParamSpec("ArgsT")
ResultT = TypeVar("ResultT")
PAGE_BYTES = 4096
_NUMBERS = count()
_folder = lru_cache(1 << 14)(posixpath.dirname)
"""Each operation on a directory finds its files among all names."""


def _pages(size_bytes: int, position: int) -> set[int]:
    return set(range(position // PAGE_BYTES, (position + size_bytes - 1) // PAGE_BYTES + 1))


class _Content:
    """An inode: what names point at."""

    __slots__ = ("data", "durable", "evicted", "modified_ms", "number", "reserved_bytes", "snapshot_fd", "unsyncable")

    def __init__(self) -> None:
        self.number = next(_NUMBERS)
        self.data = bytearray()
        self.evicted: set[int] = set()
        """Numbers of the pages that are on the disk alone."""
        self.reserved_bytes = 0
        """The size up to which blocks were reserved ahead of the bytes."""
        self.durable = b""
        self.unsyncable = False
        """A sync has failed, and later ones do nothing, as on Linux: until the bytes are written again."""
        self.modified_ms = 0
        self.snapshot_fd = -1

    def __del__(self) -> None:
        if self.snapshot_fd >= 0:
            os.close(self.snapshot_fd)


class MemoryFile:
    """A File of MemoryFiles. `holds` is the number of users that have not released it."""

    def __init__(self, files: MemoryFiles, path: str) -> None:
        self.path = path
        self.write: Callable[[ReadableBuffer], int] = self._append
        self.holds = 0
        self._files = files
        self._held_content: _Content | None = None

    def fileno(self) -> int:
        """A descriptor of the system with the present bytes, so that sendfile and preadv work on it."""
        content = self._content()
        if content.snapshot_fd < 0:
            content.snapshot_fd = os.memfd_create(posixpath.basename(self.path))
        os.ftruncate(content.snapshot_fd, 0)
        os.pwrite(content.snapshot_fd, content.data, 0)
        return content.snapshot_fd

    def hold(self) -> int:
        self._held_content = self._content()
        self.holds += 1
        return self.fileno()

    def release(self) -> None:
        self.holds -= 1
        if self.holds == 0:
            self._held_content = None

    def read(self, size_bytes: int, position: int, waits_for_disk: bool = True) -> bytes:
        self._files.count("read", self.path)
        content = self._content()
        if content.evicted:
            wanted = content.evicted & _pages(size_bytes, position)
            if wanted and not waits_for_disk:
                raise NotCached(self, size_bytes, position)
            if wanted:
                self._files.calls["wait"] += 1
            content.evicted -= wanted
        return bytes(content.data[position : position + size_bytes])

    def fetcher(self, size_bytes: int, position: int) -> Callable[[], None]:
        content = self._content()

        def fetch() -> None:
            self._files.calls["fetch"] += 1
            content.evicted -= _pages(size_bytes, position)

        return fetch

    def read_into(self, view: WriteableBuffer, position: int) -> int:
        target = memoryview(view).cast("B")
        data = self.read(len(target), position)
        target[: len(data)] = data
        return len(data)

    def reserve(self, position: int, size_bytes: int) -> bool:
        if self._files.count("reserve", self.path) is not None:
            return False
        self._content().reserved_bytes = position + size_bytes
        return True

    def rewrite(self, start: int, end: int) -> None:
        self._files.count("rewrite", self.path)
        self._content().unsyncable = False

    def truncate(self, size_bytes: int) -> None:
        self._files.count("truncate", self.path)
        self._content().reserved_bytes = 0
        data = self._content().data
        del data[size_bytes:]
        data.extend(bytes(size_bytes - len(data)))

    def size_bytes(self) -> int:
        return len(self._content().data)

    def modified_ms(self) -> int:
        return self._content().modified_ms

    def identity(self) -> tuple[int, int, int]:
        content = self._content()
        return content.number, len(content.data), hash(bytes(content.data)) & 0xFFFFFFFF

    def set_modified_ms(self, modified_ms: int) -> None:
        self._content().modified_ms = modified_ms

    def sync(self) -> None:
        content = self._content()
        try:
            self._files.count("sync", self.path)
        except OSError:
            content.unsyncable = True
            raise
        if not content.unsyncable:
            content.durable = bytes(content.data)

    def rename(self, path: str) -> None:
        self._files.rename(self.path, path)
        self.path = path

    def close(self) -> None:
        return

    def _content(self) -> _Content:
        return self._held_content or self._files.content(self.path)

    def _append(self, data: ReadableBuffer) -> int:
        view = memoryview(data).cast("B")
        allowed = self._files.count("write", self.path)
        taken = view if allowed is None else view[:allowed]
        content = self._content()
        content.data += taken
        content.modified_ms = self._files.now_ms
        return len(taken)


def _whole(
    method: Callable[Concatenate[MemoryFiles, ArgsT], ResultT],
) -> Callable[Concatenate[MemoryFiles, ArgsT], ResultT]:
    """The threads that close and load logs see each operation of the file system as done or not begun."""

    @wraps(method)
    def one_at_a_time(files: MemoryFiles, *args: ArgsT.args, **kwargs: ArgsT.kwargs) -> ResultT:
        with files.lock:
            return method(files, *args, **kwargs)

    return one_at_a_time


class MemoryFiles:
    """A whole file system. `now_ms` is what files written from now on have as their modification time."""

    def __init__(self) -> None:
        self.cache = ContentCache()
        self.calls: Counter[str] = Counter()
        """How often each operation was called: write, read, truncate, sync, create, rename, unlink,
        sync_directory, write_atomically."""
        self.now_ms = 0
        self.lock = threading.RLock()
        self._contents: dict[str, _Content] = {}
        self._durable_names: dict[str, _Content] = {}
        self._directories = {"/", ""}
        self._faults: dict[tuple[str, int], OSError | int] = {}
        self._broken: dict[str, OSError] = {}

    # Trouble to come

    def fail(self, operation: str, after: int = 0, error: OSError | None = None) -> None:
        """Let the next call of `operation` raise once `after` more have succeeded."""
        self._faults[operation, self.calls[operation] + after] = error or OSError(errno.EIO, "made to fail")

    def clear_faults(self) -> None:
        """Let everything succeed from now on."""
        self._faults.clear()

    def shorten(self, size_bytes: int, after: int = 0) -> None:
        """Let a write write at most `size_bytes` bytes, after `after` more writes have succeeded."""
        self._faults["write", self.calls["write"] + after] = size_bytes

    def refuse_reserve(self, after: int = 0) -> None:
        """Let a `reserve` find no room, once `after` more have succeeded."""
        self._faults["reserve", self.calls["reserve"] + after] = 0

    def mend_syncs(self) -> None:
        """Let files be synced again that an earlier failure has made unsyncable."""
        for content in self._contents.values():
            content.unsyncable = False

    def break_folder(self, path: str, error: OSError) -> None:
        """Everything below this path fails from now on."""
        self._broken[path + "/"] = error

    def mend_folder(self, path: str) -> None:
        del self._broken[path + "/"]

    @_whole
    def evict(self) -> None:
        """Nothing is in the page cache any more, nor in `cache`."""
        for content in self._contents.values():
            content.evicted = set(range(len(content.data) // PAGE_BYTES + 1))
        limit_bytes, self.cache.limit_bytes = self.cache.limit_bytes, 0
        self.cache.use(self, 0, lambda: None)
        self.cache.forget(self)
        self.cache.limit_bytes = limit_bytes

    @_whole
    def crash(self) -> None:
        """Lose everything that was not synced. Open Files of files that survive keep working."""
        self._contents = dict(self._durable_names)
        for content in self._contents.values():
            content.data = bytearray(content.durable)
        self._faults.clear()

    # The interface of gregor.storage.fs.files.Files

    @_whole
    def create(self, path: str) -> MemoryFile:
        self.count("create", path)
        self._check_directory(path)
        if path in self._contents:
            self._contents[path].data.clear()
        else:
            self._contents[path] = _Content()
        return MemoryFile(self, path)

    def open(self, path: str) -> MemoryFile:
        return MemoryFile(self, path)

    def exists(self, path: str) -> bool:
        return path in self._contents or path in self._directories

    @_whole
    def list_directory(self, path: str) -> list[DirectoryEntry]:
        self._check_broken(path)
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return [
            *(
                DirectoryEntry(posixpath.basename(name), False, len(content.data))
                for name, content in self._contents.items()
                if _folder(name) == path
            ),
            *(
                DirectoryEntry(posixpath.basename(name), True, 0)
                for name in self._directories
                if name not in ("", "/") and _folder(name) == path
            ),
        ]

    @_whole
    def make_directory(self, path: str) -> None:
        self._check_broken(path)
        while path not in self._directories:
            self._directories.add(path)
            path = _folder(path)

    def read_bytes(self, path: str) -> bytes:
        self.count("read", path)
        return bytes(self.content(path).data)

    @_whole
    def write_atomically(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self.count("write_atomically", path)
        self._check_directory(path)
        content = self._contents[path] = _Content()
        content.data[:] = data
        content.modified_ms = self.now_ms
        if sync:
            content.durable = bytes(data)
            self._durable_names[path] = content

    def reserve(self, path: str, size_bytes: int) -> None:
        self.count("reserve", path)
        self.write_atomically(path, bytes(size_bytes), sync=False)

    def sync_file(self, path: str) -> None:
        MemoryFile(self, path).sync()

    @_whole
    def sync_directory(self, path: str) -> None:
        self.count("sync_directory", path)
        for name in [name for name in self._durable_names if _folder(name) == path]:
            del self._durable_names[name]
        for name, content in self._contents.items():
            if _folder(name) == path:
                self._durable_names[name] = content

    @_whole
    def sync_everything(self, path: str) -> bool:
        self.count("sync_everything", path)
        for content in self._contents.values():
            content.durable = bytes(content.data)
        self._durable_names = dict(self._contents)
        return True

    @_whole
    def rename(self, source: str, target: str) -> None:
        self.count("rename", source)
        if source in self._contents:
            self._check_directory(target)
            self._contents[target] = self._contents.pop(source)
        elif source in self._directories:
            for names in (self._contents, self._durable_names):
                for name in [name for name in names if name.startswith(source + "/")]:
                    names[target + name[len(source) :]] = names.pop(name)
            self._directories.discard(source)
            self._directories.add(target)
        else:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)

    @_whole
    def unlink(self, path: str) -> None:
        self.count("unlink", path)
        self._contents.pop(path, None)

    @_whole
    def remove_directory(self, path: str) -> None:
        self._check_broken(path)
        for names in (self._contents, self._durable_names):
            for name in [name for name in names if name.startswith(path + "/")]:
                del names[name]
        self._directories = {name for name in self._directories if name != path and not name.startswith(path + "/")}

    # Between MemoryFiles and its MemoryFile

    def count(self, operation: str, path: str) -> int | None:
        """Raise the fault that was ordered for this call, or return the number of bytes that may be written."""
        with self.lock:
            fault = self._faults.pop((operation, self.calls[operation]), None) if self._faults else None
            self.calls[operation] += 1
        if self._broken:
            self._check_broken(path)
        if isinstance(fault, OSError):
            raise fault
        return fault

    def content(self, path: str) -> _Content:
        try:
            return self._contents[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", path) from None

    def _check_broken(self, path: str) -> None:
        for prefix, error in self._broken.items():
            if f"{path}/".startswith(prefix):
                raise error

    def _check_directory(self, path: str) -> None:
        if _folder(path) not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", _folder(path))
