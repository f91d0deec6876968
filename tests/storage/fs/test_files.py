"""OsFiles keeps few descriptors open, unnoticed by its users; MemoryFiles behaves the same, and can crash."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gregor.storage.fs.files import SECOND_CHANCES, ContentCache, Files, OsFiles
from tests.storage.memory_files import MemoryFiles
from tests.support.cycles import left_in_cycles


@pytest.fixture(params=["os", "memory"])
def files(request: pytest.FixtureRequest) -> Files:
    return OsFiles(limit=4) if request.param == "os" else MemoryFiles()


@pytest.fixture
def directory(files: Files, tmp_path: Path) -> str:
    path = str(tmp_path / "data")
    files.make_directory(path)
    return path


def test_a_dropped_file_is_freed_without_a_collection(tmp_path: Path) -> None:
    files = OsFiles(limit=4)

    def use() -> None:
        for name in "ab":
            file = files.create(f"{tmp_path}/{name}")
            file.close()
            assert file.write(b"hello") == 5
            file.close()
        files.open(f"{tmp_path}/a")
        again = files.open(f"{tmp_path}/b")
        assert again.write(b" world") == 6
        again.close()
        assert not hasattr(again, "read_at")

    assert left_in_cycles(use) == set()


def test_file_is_appended_to_read_cut_and_renamed(files: Files, directory: str) -> None:
    file = files.create(f"{directory}/a")
    assert file.write(b"hello ") == 6
    assert file.write(memoryview(b"world")) == 5
    assert file.read(5, 6) == b"world"
    assert file.read(100, 6) == b"world"
    buffer = bytearray(3)
    assert (file.read_into(buffer, 0), bytes(buffer)) == (3, b"hel")
    file.truncate(5)
    assert (file.size_bytes(), file.read(100, 0)) == (5, b"hello")
    assert file.write(b"!") == 1  # at the new end
    file.rename(f"{directory}/b")
    assert file.read(100, 0) == b"hello!"
    file.sync()
    assert [(entry.name, entry.size_bytes) for entry in files.list_directory(directory)] == [("b", 6)]


def test_opened_file_is_not_touched_before_its_first_use(files: Files, directory: str) -> None:
    file = files.open(f"{directory}/missing")
    with pytest.raises(FileNotFoundError):
        file.read(1, 0)
    files.create(f"{directory}/missing").write(b"now there")
    assert file.read(3, 0) == b"now"


def test_create_empties_what_was_there(files: Files, directory: str) -> None:
    files.create(f"{directory}/a").write(b"old")
    assert files.create(f"{directory}/a").size_bytes() == 0


def test_write_atomically_replaces_the_file_and_leaves_nothing_else(files: Files, directory: str) -> None:
    files.write_atomically(f"{directory}/state", b"one")
    files.write_atomically(f"{directory}/state", b"two!", sync=False)
    assert files.read_bytes(f"{directory}/state") == b"two!"
    assert [entry.name for entry in files.list_directory(directory)] == ["state"]


def test_directories(files: Files, directory: str) -> None:
    files.make_directory(f"{directory}/deep/er")
    files.create(f"{directory}/deep/er/a")
    files.rename(f"{directory}/deep/er", f"{directory}/moved")
    assert files.exists(f"{directory}/moved/a")
    assert not files.exists(f"{directory}/deep/er")
    assert sorted((entry.name, entry.is_directory) for entry in files.list_directory(directory)) == [
        ("deep", True),
        ("moved", True),
    ]
    files.remove_directory(f"{directory}/moved")
    files.unlink(f"{directory}/not-there")
    assert not files.exists(f"{directory}/moved")
    with pytest.raises(FileNotFoundError):
        files.list_directory(f"{directory}/moved")


def test_number_of_descriptors_stays_within_the_limit(tmp_path: Path) -> None:
    files = OsFiles(limit=4)
    handles = [files.create(str(tmp_path / str(number))) for number in range(20)]
    for round_number in range(3):
        for number, handle in enumerate(handles):
            handle.write(f"{round_number}:{number} ".encode())
            assert files.open_count <= 4
    assert handles[7].read(100, 0) == b"0:7 1:7 2:7 "


def test_recently_used_descriptor_outlives_idle_ones(tmp_path: Path) -> None:
    files = OsFiles(limit=3)
    busy = files.create(str(tmp_path / "busy"))
    descriptor = busy.fileno()
    for number in range(10):
        files.create(str(tmp_path / str(number)))
        assert busy.fileno() == descriptor


def test_held_descriptor_is_never_closed(tmp_path: Path) -> None:
    files = OsFiles(limit=2)
    held = files.create(str(tmp_path / "held"))
    held.write(b"content")
    descriptor = held.hold()
    others = [files.create(str(tmp_path / str(number))) for number in range(5)]
    for other in others:
        other.hold()
    assert files.open_count == 6  # all held: the limit gives way
    held.close()
    os.unlink(held.path)
    assert os.pread(descriptor, 7, 0) == b"content"
    held.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pread(descriptor, 7, 0)
    for other in others:
        other.release()
    files.create(str(tmp_path / "next"))
    assert files.open_count <= 2


def test_renamed_file_reopens_under_its_new_name(tmp_path: Path) -> None:
    files = OsFiles()
    file = files.create(str(tmp_path / "a"))
    file.write(b"x")
    file.rename(str(tmp_path / "b"))
    file.close()
    assert file.write(b"y") == 1
    assert (tmp_path / "b").read_bytes() == b"xy"


def test_memory_file_has_a_descriptor_of_the_system() -> None:
    files = MemoryFiles()
    file = files.create("a")
    file.write(b"for sendfile")
    descriptor = file.hold()
    files.unlink("a")
    assert os.pread(descriptor, 100, 4) == b"sendfile"
    file.release()


def test_crash_loses_bytes_that_were_not_synced_and_names_that_were_not_either() -> None:
    files = MemoryFiles()
    files.make_directory("/d")
    kept, unsynced, unnamed = (files.create(f"/d/{name}") for name in ("kept", "unsynced", "unnamed"))
    files.unlink("/d/unnamed")
    for file in (kept, unsynced):
        file.write(b"first ")
    kept.sync()
    files.sync_directory("/d")
    unnamed = files.create("/d/unnamed")
    unnamed.write(b"synced, but not its name")
    unnamed.sync()
    kept.write(b"second")
    files.write_atomically("/d/state", b"synced")
    files.write_atomically("/d/state", b"replaced without sync", sync=False)
    files.crash()
    assert kept.read(100, 0) == b"first "
    assert unsynced.read(100, 0) == b""
    assert not files.exists("/d/unnamed")
    assert files.read_bytes("/d/state") == b"synced"


def test_ordered_failures_come_once_each() -> None:
    files = MemoryFiles()
    file = files.create("a")
    files.fail("write", after=1, error=OSError(errno.ENOSPC, "full"))
    files.shorten(2, after=2)
    assert file.write(b"one") == 3
    with pytest.raises(OSError, match="full"):
        file.write(b"two")
    assert file.write(b"three") == 2
    assert file.write(b"!") == 1
    assert file.read(100, 0) == b"oneth!"
    files.fail("sync")
    with pytest.raises(OSError, match="made to fail"):
        file.sync()
    file.sync()


def test_cache_drops_the_least_recently_used() -> None:
    cache = ContentCache(limit_bytes=100)
    dropped: list[str] = []
    for name, size_bytes in (("a", 40), ("b", 40), ("a", 40), ("c", 30)):
        cache.use(name, size_bytes, lambda name=name: dropped.append(name))  # type: ignore[misc]
    assert dropped == ["b"]
    cache.forget("c")
    cache.use("d", 60, lambda: dropped.append("d"))
    assert dropped == ["b"]
    cache.use("a", 41, lambda: dropped.append("a"))  # grew
    assert dropped == ["b", "d"]


def test_cache_keeps_one_that_is_larger_than_its_limit() -> None:
    cache = ContentCache(limit_bytes=10)
    dropped: list[str] = []
    cache.use("large", 50, lambda: dropped.append("large"))
    assert dropped == []
    cache.use("small", 1, lambda: dropped.append("small"))
    assert dropped == ["large"]


def test_storage_does_with_fewer_files_when_descriptors_run_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = OsFiles(limit=200)
    opened = [files.create(str(tmp_path / f"file-{number}")) for number in range(150)]
    real, refused = os.open, [errno.EMFILE]

    def scarce(*arguments: Any) -> int:
        if refused:
            raise OSError(refused.pop(), "too many")
        return real(*arguments)

    monkeypatch.setattr(os, "open", scarce)
    last = files.create(str(tmp_path / "last"))
    assert last.write(b"x") == 1
    assert files.limit == files.open_count == 112
    assert opened[0].write(b"y") == 1
    assert files.open_count == 112


def test_a_file_that_is_not_held_gives_its_descriptor_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where storage has only a few of all descriptors."""
    files = OsFiles()
    first, second, third = (files.create(str(tmp_path / name)) for name in "abc")
    third.close()
    real = os.open

    def scarce(*arguments: Any) -> int:
        if files.open_count >= 2:
            raise OSError(errno.EMFILE, "too many")
        return real(*arguments)

    monkeypatch.setattr(os, "open", scarce)
    first.hold()
    assert third.write(b"x") == 1
    assert (first.is_open, second.is_open, third.is_open) == (True, False, True)
    third.hold()
    with pytest.raises(OSError, match="too many"):
        second.fileno()
    first.release()
    assert second.write(b"y") == 1


def test_a_file_goes_though_all_are_in_use(tmp_path: Path) -> None:
    files = OsFiles(limit=200)
    opened = [files.create(str(tmp_path / f"file-{number}")) for number in range(200)]
    for file in opened:
        file.fileno()
    opened[SECOND_CHANCES].hold()
    files.create(str(tmp_path / "last"))
    assert [file.path for file in opened if not file.is_open] == [opened[SECOND_CHANCES + 1].path]
    assert [file.used for file in opened] == [False] * (SECOND_CHANCES + 1) + [True] * 149


def test_everything_is_synced(files: Files, directory: str) -> None:
    path = f"{directory}/file"
    files.create(path).write(b"content")
    assert files.sync_everything(directory)
    assert files.read_bytes(path) == b"content"


def test_files_that_are_removed_while_they_are_listed_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = OsFiles(limit=4)
    for name in "abc":
        files.create(f"{tmp_path}/{name}").write(name.encode())
    names_read = os.scandir

    @contextlib.contextmanager
    def removing(path: str) -> Iterator[list[os.DirEntry[str]]]:
        with names_read(path) as entries:
            listed = list(entries)
        os.unlink(f"{tmp_path}/b")
        yield listed

    monkeypatch.setattr(os, "scandir", removing)
    assert sorted(files.list_directory(str(tmp_path))) == [("a", False, 1), ("c", False, 1)]


def test_a_link_to_nothing_is_an_error(tmp_path: Path) -> None:
    os.symlink("nowhere", f"{tmp_path}/00000000000000000000.log")
    with pytest.raises(FileNotFoundError):
        OsFiles(limit=4).list_directory(str(tmp_path))


def test_an_old_kernel_does_not_tell_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gregor.storage.fs.files._linux_release", lambda: (5, 7))
    assert not OsFiles().sync_everything(str(tmp_path))


@pytest.mark.skipif(sys.platform != "linux", reason="syncfs is Linux's")
def test_a_directory_that_is_not_there_cannot_be_synced(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OsFiles().sync_everything(str(tmp_path / "none"))
