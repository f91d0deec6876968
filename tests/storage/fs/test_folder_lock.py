"""One broker per data folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gregor.storage.fs.folder_lock import FolderInUse, FolderLock

# Another process locks .lock as a Java broker does, with a POSIX record lock.
TRY_POSIX_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(7)
"""


def test_a_second_holder_is_refused_by_name(tmp_path: Path) -> None:
    lock = FolderLock(str(tmp_path))
    with pytest.raises(FolderInUse, match=str(tmp_path)):
        FolderLock(str(tmp_path))
    lock.release()


def test_a_refused_attempt_does_not_loosen_the_lock(tmp_path: Path) -> None:
    lock = FolderLock(str(tmp_path))
    for _ in range(2):
        with pytest.raises(FolderInUse):
            FolderLock(str(tmp_path))
    lock.release()


def test_free_again_after_release(tmp_path: Path) -> None:
    lock = FolderLock(str(tmp_path))
    lock.release()
    lock.release()
    FolderLock(str(tmp_path)).release()
    assert (tmp_path / ".lock").exists()


def test_a_missing_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FolderLock(str(tmp_path / "none"))


def test_a_java_broker_sees_the_lock(tmp_path: Path) -> None:
    def attempt() -> int:
        return subprocess.run([sys.executable, "-I", "-c", TRY_POSIX_LOCK, str(tmp_path / ".lock")]).returncode

    lock = FolderLock(str(tmp_path))
    assert attempt() == 7
    lock.release()
    assert attempt() == 0
