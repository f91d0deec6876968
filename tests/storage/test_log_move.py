"""storage.log_move by itself: what an error of one of both disks leaves, and which of both it is about."""

from __future__ import annotations

import errno
import struct

import pytest

from config.broker import BrokerConfig
from protocol.ids import ZERO_UUID
from storage.index import SparseIndex
from storage.log_move import LogMove
from storage.manager import LogManager
from storage.memory_files import MemoryFiles
from tests.storage.logs import NOW_MS, batch, log_config, read_offsets

HOME, TARGET = "/home", "/target"


def begun(files: MemoryFiles, count: int = 10) -> tuple[LogManager, LogMove]:
    for folder in (HOME, TARGET):
        files.make_directory(folder)
    manager = LogManager(BrokerConfig({"log.dirs": f"{HOME},{TARGET}"}), files, lambda: NOW_MS)
    for _ in manager.load():
        pass
    log = manager.get_or_create("t", 0, ZERO_UUID, log_config(index_interval_bytes=0))
    for _ in range(count):
        log.append_as_leader(batch(1), 0, NOW_MS)
    log.high_watermark = count
    return manager, manager.moves.begin(("t", 0), manager.folders[1])


def copied(move: LogMove) -> None:
    while (plan := move.plan()) is not None:
        plan.run()
        move.copied(plan)


def index_entries(files: MemoryFiles, folder: str) -> list[tuple[int, int]]:
    return list(struct.iter_unpack(">ii", files.read_bytes(f"{folder}/t-0/{0:020d}.index")))


def test_a_swap_that_is_tried_again_copies_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Index entries for which the full disk has no room come from memory, with each attempt."""
    files = MemoryFiles()
    manager, move = begun(files)
    copied(move)
    write_pending = SparseIndex.write_pending

    def full(index: SparseIndex) -> None:
        if index.file.path.startswith(HOME):
            raise OSError(errno.ENOSPC, "no room")
        write_pending(index)

    monkeypatch.setattr(SparseIndex, "write_pending", full)
    for _ in range(5):
        move.log.append_as_leader(batch(1), 0, NOW_MS)
    for _ in range(2):
        files.fail("rename", error=OSError(errno.ENOSPC, "no room for a longer name", move.log.directory))
        with pytest.raises(OSError, match="longer name") as caught:
            manager.finish_move(move)
        assert move.failed_folder(caught.value).path == HOME
        assert move.is_caught_up()
    moved, _ = manager.finish_move(move)
    assert moved.directory == f"{TARGET}/t-0"
    entries = index_entries(files, TARGET)
    assert len(entries) == 14
    assert entries == sorted(set(entries))
    assert read_offsets(moved, 0) == list(range(15))


def test_an_error_is_about_the_disk_that_it_came_from() -> None:
    files = MemoryFiles()
    manager, move = begun(files)
    home, target = manager.folders
    for path, folder in (
        (f"{HOME}/t-0", home),
        (f"{HOME}/t-0/{0:020d}.log", home),
        (f"{move.directory}/{0:020d}.log", target),
        (f"{HOME}/t-00/x", target),  # no file of this log
        (None, target),  # a write or a sync of the copy
    ):
        assert move.failed_folder(OSError(errno.EIO, "a bad block", path)) is folder
    plan = move.plan()
    assert plan is not None
    files.create(f"{HOME}/t-0/{0:020d}.log")  # emptied behind its back
    plan.run()
    with pytest.raises(OSError, match="shorter") as caught:
        move.copied(plan)
    assert move.failed_folder(caught.value) is home


def test_what_a_truncation_makes_shorter_is_no_error() -> None:
    files = MemoryFiles()
    manager, move = begun(files)
    plan = move.plan()
    assert plan is not None
    move.log.truncate_to(3)
    plan.run()
    move.copied(plan)
    copied(move)
    moved, _ = manager.finish_move(move)
    assert read_offsets(moved, 0) == [0, 1, 2]
