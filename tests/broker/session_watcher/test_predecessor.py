from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gregor.broker.session_watcher import predecessor
from gregor.broker.session_watcher.predecessor import FILE_NAME, SessionNote
from gregor.broker.session_watcher.session_end import Session

SESSION = Session(0x7F00000000000001, b"secret", 6000, (("127.0.0.1", 2181),))


def test_the_next_process_finds_the_session(tmp_path: Path) -> None:
    assert SessionNote(str(tmp_path)).read() is None
    SessionNote(str(tmp_path)).write(SESSION)
    SessionNote(str(tmp_path)).write(SESSION._replace(session_id=2))
    found = SessionNote(str(tmp_path)).read()
    assert found is not None
    assert found.session_id == 2
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    SessionNote(str(tmp_path)).remove()
    assert SessionNote(str(tmp_path)).read() is None


def test_a_copied_folder_names_no_predecessor(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    SessionNote(f"{tmp_path}/a").write(SESSION)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert SessionNote(f"{tmp_path}/b").read() is None
    os.rename(tmp_path / "a", tmp_path / "c")  # moved, it is the same
    assert SessionNote(f"{tmp_path}/c").read() == SESSION


def test_another_boot_names_no_predecessor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SessionNote(str(tmp_path)).write(SESSION)
    (tmp_path / "boot_id").write_text("another\n")
    monkeypatch.setattr(predecessor, "_BOOT_ID", str(tmp_path / "boot_id"))
    assert SessionNote(str(tmp_path)).read() is None


def test_without_a_name_of_the_boot_nothing_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predecessor, "_BOOT_ID", str(tmp_path / "none"))
    SessionNote(str(tmp_path)).write(SESSION)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("cut", range(0, 200, 7))
def test_half_a_file_names_no_predecessor(tmp_path: Path, cut: int) -> None:
    SessionNote(str(tmp_path)).write(SESSION)
    content = (tmp_path / FILE_NAME).read_bytes()
    with (tmp_path / FILE_NAME).open("r+b") as file:
        file.truncate(min(cut, len(content) - 2))
    assert SessionNote(str(tmp_path)).read() is None
