"""Files that are only read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gregor.storage.fs.files import OsFiles
from gregor.storage.fs.folder_lock import FolderLock, is_locked
from gregor.storage.fs.read_only import ReadOnlyFiles

WRITES: dict[str, Callable[[OsFiles, str], object]] = {
    "write": lambda files, path: files.open(path).write(b"x"),
    "truncate": lambda files, path: files.open(path).truncate(0),
    "rename a file": lambda files, path: files.open(path).rename(path + "2"),
    "create": lambda files, path: files.create(path),
    "write_atomically": lambda files, path: files.write_atomically(path, b""),
    "make_directory": lambda files, path: files.make_directory(path + "3"),
    "rename": lambda files, path: files.rename(path, path + "2"),
    "unlink": lambda files, path: files.unlink(path),
    "remove_directory": lambda files, path: files.remove_directory(str(Path(path).parent)),
}


@pytest.mark.parametrize("name", WRITES)
def test_nothing_can_be_changed(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"hello")
    path.chmod(0o444)
    files = ReadOnlyFiles()
    assert files.open(str(path)).read(5, 0) == b"hello"
    with pytest.raises(OSError, match="for reading only"):
        WRITES[name](files, str(path))
    read = files.open(str(path))
    read.fileno()
    with pytest.raises(OSError, match="for reading only|Bad file descriptor"):
        read.write(b"x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"] and path.read_bytes() == b"hello"


def test_whether_a_folder_is_in_use(tmp_path: Path) -> None:
    assert not is_locked(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    lock = FolderLock(str(tmp_path))
    assert is_locked(str(tmp_path))
    lock.release()
    assert not is_locked(str(tmp_path))
