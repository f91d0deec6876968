"""Reads that do not wait, with a kernel that is made to refuse; and once with the real one and an evicted file."""

from __future__ import annotations

import errno
import gc
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gregor.storage.fs import cached_reads
from gregor.storage.fs.cached_reads import Fetch, NotCached, read_cached
from gregor.storage.fs.files import OsFile, OsFiles
from tests.support.evicted import evict

CONTENT = bytes(range(256)) * 64
PREADV = os.preadv


@pytest.fixture
def file(tmp_path: Path) -> OsFile:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return OsFiles().open(str(path))


@pytest.fixture
def cached_up_to(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Have the kernel report that only the given number of bytes of any file is in memory."""

    def set_limit(limit: int) -> None:
        def preadv(descriptor: int, buffers: list[Any], position: int, flags: int = 0) -> int:
            assert flags == os.RWF_NOWAIT
            if position >= limit and position < len(CONTENT):
                raise BlockingIOError(errno.EAGAIN, "not in memory")
            view = memoryview(buffers[0])
            return PREADV(descriptor, [view[: max(0, limit - position)]], position)

        monkeypatch.setattr(os, "preadv", preadv)

    return set_limit


def without_waiting(file: OsFile, size_bytes: int, position: int) -> bytes:
    return file.read(size_bytes, position, waits_for_disk=False)


def test_what_is_in_memory_is_read(file: OsFile, cached_up_to: Callable[[int], None]) -> None:
    cached_up_to(len(CONTENT))
    for size_bytes, position in ((0, 0), (100, 7), (4096, 0), (100, len(CONTENT) - 1), (10, len(CONTENT)), (1, 10**6)):
        assert without_waiting(file, size_bytes, position) == CONTENT[position : position + size_bytes]


def test_a_part_in_memory_is_not_enough(file: OsFile, cached_up_to: Callable[[int], None]) -> None:
    cached_up_to(1000)
    assert without_waiting(file, 1000, 0) == CONTENT[:1000]
    for size_bytes, position in ((1001, 0), (2, 999), (1, 1000)):
        with pytest.raises(NotCached, match=f"{size_bytes} bytes") as raised:
            without_waiting(file, size_bytes, position)
        raised.value.fetcher()()
        assert file.read(size_bytes, position) == CONTENT[position : position + size_bytes]


def test_a_read_that_may_wait_is_independent_of_those_that_may_not(
    file: OsFile, cached_up_to: Callable[[int], None]
) -> None:
    cached_up_to(0)
    with pytest.raises(NotCached):
        without_waiting(file, 10, 3)
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(file.read(10, 3)))
    thread.start()
    thread.join()
    assert found == [CONTENT[3:13]] == [file.read(10, 3)]


def test_a_fetcher_that_is_never_called_keeps_no_descriptor(file: OsFile) -> None:
    made: list[int] = []
    closed: list[int] = []
    duplicate = os.dup

    def noted(descriptor: int) -> int:
        made.append(duplicate(descriptor))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "dup", noted)
        fetcher = file.fetcher(10, 0)
        assert isinstance(fetcher, Fetch)
        assert os.fstat(made[0]).st_size == len(CONTENT)
        patch.setattr(os, "close", closed.append)
        del fetcher
    assert closed == made
    os.close(made[0])


def test_a_fetch_of_a_file_that_was_removed_meanwhile(file: OsFile, cached_up_to: Callable[[int], None]) -> None:
    cached_up_to(0)
    with pytest.raises(NotCached) as raised:
        without_waiting(file, 10, 0)
    file.close()
    os.unlink(file.path)
    with pytest.raises(FileNotFoundError):
        raised.value.fetcher()


def test_a_fetch_that_fails_says_nothing(file: OsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> bytes:
        raise OSError(errno.EIO, "a bad sector")

    fetcher = file.fetcher(10, 0)
    monkeypatch.setattr(os, "pread", fail)
    fetcher()


def test_a_fetch_without_a_descriptor_to_have(file: OsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    monkeypatch.setattr(os, "dup", fail)
    with pytest.raises(OSError):
        file.fetcher(10, 0)
    gc.collect()
    assert unraisable == []


def test_a_file_system_that_cannot_tell(file: OsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "preadv", refuse)
    assert read_cached(file.fileno(), 100, 3) == CONTENT[3:103]
    monkeypatch.setattr(cached_reads, "_NOWAIT", 0)
    assert read_cached(file.fileno(), 4, 0) == CONTENT[:4]


def test_an_evicted_file(tmp_path: Path) -> None:
    """Linux begins to read what it refuses, and a quick disk may be done before the refusal: so try some times."""
    path = tmp_path / "large"
    content = os.urandom(1 << 20)
    path.write_bytes(content)
    file = OsFiles().open(str(path))
    for _ in range(20):
        if not evict(path):
            pytest.skip("files of this system cannot be taken out of memory")
        try:
            assert without_waiting(file, 1 << 20, 0) == content
        except NotCached as missing:
            missing.fetcher()()
            assert without_waiting(file, 1 << 20, 0) == content
            return
    pytest.fail("it was read without a wait 20 times")
