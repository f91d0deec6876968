"""A start that ends while it still lists the partitions: the data folders stay as they were."""

from __future__ import annotations

import pytest

from gregor.config.broker import BrokerConfig
from gregor.protocol.ids import ZERO_UUID
from gregor.storage.folders import loading
from gregor.storage.folders.data_folder import CLEAN_SHUTDOWN_FILE
from gregor.storage.folders.loading import DuplicatePartition
from gregor.storage.folders.manager import LogManager
from tests.storage.logs import NOW_MS, batch, log_config
from tests.storage.memory_files import MemoryFiles

FOLDERS = ("/a", "/b")
PARTITIONS_COUNT = 4


def new_manager(files: MemoryFiles) -> LogManager:
    return LogManager(BrokerConfig({"log.dirs": ",".join(FOLDERS)}), files, lambda: NOW_MS)


def loaded(files: MemoryFiles) -> LogManager:
    manager = new_manager(files)
    for _ in manager.load():
        pass
    return manager


def small_files(files: MemoryFiles) -> dict[str, bytes]:
    """The files of the data folders themselves, with their content."""
    return {
        f"{folder}/{entry.name}": files.read_bytes(f"{folder}/{entry.name}")
        for folder in FOLDERS
        for entry in files.list_directory(folder)
        if not entry.is_directory
    }


@pytest.fixture(params=[True, False], ids=["clean stop", "crash"])
def was_clean(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def files(was_clean: bool) -> MemoryFiles:
    """Two data folders with partitions of which records were deleted."""
    files = MemoryFiles()
    for folder in FOLDERS:
        files.make_directory(folder)
    manager = loaded(files)
    for partition in range(PARTITIONS_COUNT):
        log = manager.get_or_create("t", partition, ZERO_UUID, log_config())
        log.append_as_leader(batch(10), 0, NOW_MS)
        log.offsets.restore_high_watermark(10)
        log.retention.advance_log_start_offset(5)
    manager.close_all()
    if not was_clean:
        for folder in FOLDERS:
            files.unlink(f"{folder}/{CLEAN_SHUTDOWN_FILE}")
    return files


def test_a_stop_before_all_partitions_are_listed(
    files: MemoryFiles, was_clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "FOLDERS_PER_STEP", 1)
    before = small_files(files)
    manager = new_manager(files)
    next(manager.load())
    assert not manager.listed
    manager.close_all()
    assert small_files(files) == before
    again = loaded(files)
    assert [folder.was_clean for folder in again.folders] == [was_clean, was_clean]
    assert {key: log.log_start_offset for key, log in again.logs.items()} == {
        ("t", partition): 5 for partition in range(PARTITIONS_COUNT)
    }


def test_a_start_that_a_duplicate_partition_refuses(files: MemoryFiles) -> None:
    log = loaded(files).logs["t", 0]
    other = next(folder for folder in FOLDERS if not log.directory.startswith(folder))
    log.close(clean=False)
    files.make_directory(f"{other}/t-0")
    files.write_atomically(f"{other}/t-0/{0:020}.log", b"")
    before = small_files(files)
    manager = new_manager(files)
    with pytest.raises(DuplicatePartition):
        next(manager.load())
    manager.close_all()
    assert small_files(files) == before


def test_a_stop_before_anything_is_read(files: MemoryFiles) -> None:
    before = small_files(files)
    new_manager(files).close_all()
    assert small_files(files) == before
