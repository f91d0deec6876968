"""`gregor verify` as a user calls it; its findings are tested with gregor.storage.verify.folder."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from gregor.broker.cli import verify
from gregor.storage.fs.folder_lock import FolderLock
from gregor.storage.verify.folder import Progress
from tests.storage.verify.test_folder import CLEAN, FOLDER, LOGS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in CLEAN.items():
        path = tmp_path / name.removeprefix(FOLDER + "/")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return tmp_path


def test_complete_folder_is_not_changed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert verify.main([str(folder), "--deep-iteration"]) == 0
    assert capsys.readouterr().out == "1 partitions, 3 segments, 40 batches, 4840 bytes: no problems.\n"
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_damage_is_named_with_a_remedy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = folder / LOGS[0].removeprefix(FOLDER + "/")
    log.write_bytes(log.read_bytes()[:-5] + b"12345")
    (folder / ".kafka_cleanshutdown").unlink()
    assert verify.main([str(folder), "--topic", "orders:0"]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert "was not closed cleanly" in first
    assert second.startswith(f"{log}: at position ") and "CRC-32C" in second and "Restore the file" in second
    assert last.endswith(": 1 problems.")


def test_folder_in_use_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = FolderLock(str(folder))
    assert verify.main([str(folder)]) == 0
    lock.release()
    assert "in use by a running broker" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ([], "FOLDER"),
        (["no-such-folder"], "is not a folder"),
        (["{}", "--topic", "orders:x"], "does not select partitions"),
        (["{}", "--topic", "returns"], "contains no partition of"),
        (["{}", "--topic", "orders:1"], "contains no partition of"),
    ],
)
def test_arguments(folder: Path, arguments: list[str], cause: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main([argument.format(folder) for argument in arguments]) == 1
    said = capsys.readouterr()
    assert cause in said.out + said.err


def test_progress_is_drawn_on_a_terminal_and_removed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(verify, "PROGRESS_EVERY_S", -1.0)
    show = verify.Display()
    show.progress(Progress("/data/orders-0", 500_000, 2_000_000))
    assert screen.getvalue().startswith("\r25% of 2 MB, at orders-0")
    show.clear()
    assert screen.getvalue().endswith("\r")
