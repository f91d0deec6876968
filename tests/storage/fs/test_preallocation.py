"""preallocate: the space that it reserves, when it is released, and that zeros left by Apache Kafka do no harm."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from gregor.storage.fs import preallocation
from gregor.storage.fs.files import OsFiles
from tests.storage.logs import DIRECTORY, NOW_MS, batch, log_config, open_log, read_offsets
from tests.storage.memory_files import MemoryFiles
from tests.storage.recovery.test_recovery import load

BATCH_BYTES = len(batch())
PIECE = 4 * BATCH_BYTES


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gregor.storage.segment.segment.PIECE_BYTES", PIECE)


def reserved(files: MemoryFiles, base_offset: int = 0) -> int:
    return files.content(f"{DIRECTORY}/{base_offset:020d}.log").reserved_bytes


def test_room_is_taken_ahead_and_given_back() -> None:
    files = MemoryFiles()
    log = open_log(files, preallocate=True, segment_bytes=10 * BATCH_BYTES)
    found = []
    for number in range(12):
        log.append_as_leader(batch(), 0, NOW_MS)
        found.append(reserved(files, 0 if number < 10 else 10) // BATCH_BYTES)
    assert found == [4, 4, 4, 4, 8, 8, 8, 8, 10, 10, 4, 4]
    assert reserved(files) == 0
    assert [segment.base_offset for segment in log.segments] == [0, 10]
    log.close(clean=True)
    assert reserved(files, 10) == 0
    assert files.calls["reserve"] == 4


def test_a_batch_larger_than_a_piece() -> None:
    files = MemoryFiles()
    log = open_log(files, preallocate=True)
    log.append_as_leader(batch(size=5 * PIECE), 0, NOW_MS)
    assert reserved(files) == log.size_bytes


@pytest.mark.parametrize("preallocate", [False, True])
def test_the_files_are_the_same(preallocate: bool) -> None:
    files = MemoryFiles()
    log = open_log(files, preallocate=preallocate, segment_bytes=5 * BATCH_BYTES, index_interval_bytes=1)
    for number in range(23):
        log.append_as_leader(batch(timestamp_ms=NOW_MS + number), 0, NOW_MS)
        if number == 11:
            log.truncate_to(9)
    assert [segment.base_offset for segment in log.segments] == [0, 5, 10, 15]
    assert [segment.size_bytes for segment in log.segments] == [5 * BATCH_BYTES] * 4
    assert read_offsets(log, 0) == list(range(20))


def test_without_room_it_goes_on() -> None:
    files = MemoryFiles()
    files.refuse_reserve()
    log = open_log(files, preallocate=True, segment_bytes=10 * BATCH_BYTES)
    for _ in range(10):
        log.append_as_leader(batch(), 0, NOW_MS)
    assert files.calls["reserve"] == 1
    log.append_as_leader(batch(), 0, NOW_MS)
    assert reserved(files, 10) == PIECE


def test_the_setting_may_change() -> None:
    files = MemoryFiles()
    log = open_log(files, segment_bytes=10 * BATCH_BYTES)
    log.append_as_leader(batch(), 0, NOW_MS)
    log.configure(log_config(preallocate=True, segment_bytes=10 * BATCH_BYTES))
    log.append_as_leader(batch(), 0, NOW_MS)
    assert reserved(files) == BATCH_BYTES + PIECE
    log.configure(log_config(segment_bytes=10 * BATCH_BYTES))
    log.append_as_leader(batch(), 0, NOW_MS)
    log.roll(NOW_MS)
    assert reserved(files) == 0


def test_on_a_real_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gregor.storage.segment.segment.PIECE_BYTES", 1 << 20)
    folder = tmp_path / "orders-0"
    log = open_log(OsFiles(), str(folder), preallocate=True, segment_bytes=3 << 20)
    path = folder / f"{0:020d}.log"
    log.append_as_leader(batch(), 0, NOW_MS)
    status = path.stat()
    assert status.st_size == BATCH_BYTES
    if status.st_blocks * 512 < 1 << 20:
        pytest.skip("this file system takes no blocks ahead")
    log.close(clean=True)
    status = path.stat()
    assert (status.st_size, status.st_blocks * 512 < 1 << 17) == (BATCH_BYTES, True)


def test_a_system_without_such_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    with (tmp_path / "file").open("wb") as file:
        assert preallocation.reserve(file.fileno(), 0, 4096) is False
    assert os.stat(tmp_path / "file").st_size == 0


@pytest.mark.parametrize("clean", [False, True])
def test_zeros_behind_the_batches_are_cut_off(clean: bool) -> None:
    """Apache Kafka with preallocation leaves such zeros when it is killed."""
    files = MemoryFiles()
    log = open_log(files, index_interval_bytes=1)
    for _ in range(5):
        log.append_as_leader(batch(), 3, NOW_MS)
    log.close(clean=True)
    for suffix, size_bytes in ((".log", 1 << 20), (".index", 8 * 1000), (".timeindex", 12 * 1000)):
        content = files.content(f"{DIRECTORY}/{0:020d}{suffix}").data
        content.extend(bytes(size_bytes - len(content)))
    again, _ = load(files, clean=clean, segment_bytes=1 << 30)
    assert (again.log_end_offset, again.size_bytes) == (5, 5 * BATCH_BYTES)
    again.append_as_leader(batch(), 3, NOW_MS)
    assert read_offsets(again, 0) == list(range(6))
