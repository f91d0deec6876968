"""Where features meet: a log that is removed, moved, truncated or fails while another job is at it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest

from gregor.config.broker import BrokerConfig
from gregor.protocol.errors import KafkaError
from gregor.protocol.ids import Uuid, random_uuid
from gregor.protocol.records.batch import build_batch
from gregor.protocol.turns import Steps, run_all
from gregor.storage.cleaner.cleaner import CleaningRun
from gregor.storage.folders import checkpoint_contents
from gregor.storage.folders.checkpoints import LOG_START_OFFSET_FILE, RECOVERY_POINT_FILE
from gregor.storage.folders.manager import LogManager
from gregor.storage.log.log import Log
from gregor.storage.log.swap import LogChanged, SwapPlan, unlink_unfinished
from tests.storage.compacting import all_records, job_for, live_producers
from tests.storage.folders.test_manager import offsets_in
from tests.storage.logs import NOW_MS, batch, log_config, read_offsets, sequenced
from tests.storage.memory_files import MemoryFile, MemoryFiles

CONFIG = log_config(segment_bytes=300, index_interval_bytes=100, cleanup_policy=frozenset(["compact"]))
FOLDERS = ("/data", "/more")


def started(files: MemoryFiles, *folders: str) -> LogManager:
    for folder in folders:
        files.make_directory(folder)
    manager = LogManager(BrokerConfig({"log.dirs": ",".join(folders)}), files, lambda: NOW_MS)
    for _ in manager.load(lambda topic: CONFIG):
        pass
    return manager


def made(manager: LogManager, topic: str = "orders", count: int = 12, topic_id: Uuid | None = None) -> Log:
    log = manager.get_or_create(topic, 0, topic_id or random_uuid(), CONFIG)
    for _ in range(count):
        log.append_as_leader(batch(1), 0, NOW_MS)
    log.offsets.restore_high_watermark(log.log_end_offset)
    return log


def swap_begun(files: MemoryFiles, log: Log) -> SwapPlan:
    log.roll(NOW_MS)
    run = CleaningRun(files, job_for(log, NOW_MS, segment_bytes=5000), live_producers(log))
    run.build_map()
    result = run.clean(run.groups()[0])
    sources = [one for one in log.segments if one.base_offset in result.sources]
    return log.swap.begin(result.base_offset, result.size_bytes, sources, log.generation)


def finished(slices: Steps[Any]) -> Any:
    try:
        while True:
            next(slices)
    except StopIteration as stop:
        return stop.value


# Checkpoints that are gathered in slices


def test_deleted_records_stay_deleted_whatever_is_gathered_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_contents, "ITEMS_PER_STEP", 1)
    files = MemoryFiles()
    manager = started(files, "/data")
    log = made(manager)
    made(manager, "other")
    slices = manager.checkpoints.recovery_points()
    next(slices)  # has seen the first log
    log.retention.advance_log_start_offset(7)
    manager.checkpoints.log_starts()()
    assert finished(slices)() == {}
    assert offsets_in(files, LOG_START_OFFSET_FILE) == {("orders", 0): 7}


def test_a_log_that_moves_while_checkpoints_are_gathered_is_in_those_of_its_new_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint_contents, "ITEMS_PER_STEP", 1)
    files = MemoryFiles()
    manager = started(files, *FOLDERS)
    log = made(manager)
    made(manager, "other")
    log.retention.advance_log_start_offset(7)
    slices = manager.checkpoints.recovery_points()
    home, target = "/data", "/more"
    moved_to(manager, log, target, before_the_end=lambda: next(slices))
    assert finished(slices)() == {}
    assert offsets_in(files, LOG_START_OFFSET_FILE, target) == {("orders", 0): 7}
    assert ("orders", 0) not in offsets_in(files, RECOVERY_POINT_FILE, home)


def moved_to(manager: LogManager, log: Log, path: str, before_the_end: Callable[[], object] = lambda: None) -> Log:
    (folder,) = [one for one in manager.folders if one.path == path]
    move = manager.moves.begin((log.topic, log.partition), folder)
    while (plan := move.plan()) is not None:
        plan.run()
        move.copied(plan)
    run_all(manager.checkpoints.recovery_points())()
    before_the_end()
    assert move.is_caught_up()
    return manager.finish_move(move)[0]


def test_a_segment_that_was_compacted_after_it_was_copied_is_not_taken_for_synced() -> None:
    files = MemoryFiles()
    manager = started(files, *FOLDERS)
    log = made(manager)
    swap = swap_begun(files, log)
    move = manager.moves.begin(("orders", 0), manager.folders[1])
    while (plan := move.plan()) is not None:
        plan.run()
        move.copied(plan)
    assert move.recovery_point == 12
    log.swap.finish(swap)
    assert move.is_caught_up()
    assert move.recovery_point == 0


def test_a_moved_log_knows_the_latest_time_of_its_active_segment() -> None:
    files = MemoryFiles()
    manager = started(files, *FOLDERS)
    log = made(manager)
    log.configure(log_config(index_interval_bytes=100_000))
    log.append_as_leader(batch(1, timestamp_ms=NOW_MS + 50), 0, NOW_MS)
    log.append_as_leader(batch(1, timestamp_ms=NOW_MS + 40), 0, NOW_MS)
    moved = moved_to(manager, log, "/more")
    assert moved.segments[-1].largest_timestamp_ms == NOW_MS + 50
    assert run_all(moved.offset_for_timestamp(NOW_MS + 45)) == (NOW_MS + 50, 12, 0)
    manager.close_all()
    again = started(files, *FOLDERS).logs["orders", 0]
    assert run_all(again.offset_for_timestamp(NOW_MS + 45)) == (NOW_MS + 50, 12, 0)


def test_the_leader_epochs_of_a_moved_log_are_synced() -> None:
    files = MemoryFiles()
    manager = started(files, *FOLDERS)
    log = made(manager)
    log.append_as_leader(batch(1), 3, NOW_MS)
    moved_to(manager, log, "/more").flusher.flush(NOW_MS)
    run_all(manager.checkpoints.recovery_points())()
    files.crash()
    assert started(files, *FOLDERS).logs["orders", 0].epochs.entries() == [(0, 0), (3, 12)]


def test_a_copy_that_cannot_be_planned_holds_nothing() -> None:
    files = MemoryFiles()
    manager = started(files, *FOLDERS)
    log = made(manager)
    move = manager.moves.begin(("orders", 0), manager.folders[1])
    files.unlink(f"{log.directory}/{0:020d}.timeindex")
    with pytest.raises(OSError):
        move.plan()
    assert {cast(MemoryFile, file).holds for file in log.segments[0].files()} == {0}


def test_a_log_that_failed_keeps_in_the_checkpoints_what_it_had_last() -> None:
    files = MemoryFiles()
    manager = started(files, "/data")
    log = made(manager)
    log.flusher.flush(NOW_MS)
    log.retention.advance_log_start_offset(7)
    manager.checkpoints.write_all()
    manager.fail_log(log, OSError(errno.EACCES, "no more"))
    manager.checkpoints.write_all()
    again = started(files, "/data").logs["orders", 0]
    assert again.log_start_offset == 7
    assert offsets_in(files, RECOVERY_POINT_FILE) == {("orders", 0): 12}


# Compaction


def test_a_topic_made_anew_under_a_compaction_of_its_predecessor() -> None:
    files = MemoryFiles()
    manager = started(files, "/data")
    plan = swap_begun(files, old := made(manager))
    manager.remove("orders", 0)
    new = made(manager, count=3)
    before = sorted(entry.name for entry in files.list_directory(new.directory))
    with pytest.raises(LogChanged):
        old.swap.finish(plan)
    assert old.swap.discard(plan) == []
    assert sorted(entry.name for entry in files.list_directory(new.directory)) == before


def test_nobody_appends_to_a_log_that_was_removed() -> None:
    files = MemoryFiles()
    manager = started(files, "/data")
    old = made(manager, count=1)
    manager.remove("orders", 0)
    new = made(manager, count=3)
    size_bytes = files.open(new.segments[0].log.path).size_bytes()
    with pytest.raises(KafkaError):
        old.append_as_leader(batch(1), 0, NOW_MS)
    with pytest.raises(KafkaError):
        old.append_as_follower(batch(1, base_offset=1), NOW_MS)
    assert files.open(new.segments[0].log.path).size_bytes() == size_bytes


@pytest.mark.parametrize("renames", range(20))
def test_a_swap_that_fails_half_way_is_not_taken_back(renames: int) -> None:
    files = MemoryFiles()
    manager = started(files, "/data")
    log = made(manager)
    expected = [record.value for record in all_records(log)][-1]
    plan = swap_begun(files, log)
    files.fail("rename", after=renames, error=OSError(errno.ENOSPC, "no room for a longer name"))
    try:
        log.swap.finish(plan)
    except KafkaError:
        assert log.offline
        for path in log.swap.discard(plan):  # as by a caller that ignores the kind of the error
            files.unlink(path)
    again = started(files, "/data").logs["orders", 0]
    assert again.log_end_offset == 12
    assert [record.value for record in all_records(again)] == [expected]


@pytest.mark.parametrize("renames", range(4))
def test_a_crash_while_a_swap_is_taken_back_leaves_no_index_of_another_segment(renames: int) -> None:
    files = MemoryFiles()
    manager = started(files, "/data")
    log = made(manager, count=0)
    log.configure(log_config(segment_bytes=2000, index_interval_bytes=100))
    for number in range(30):
        key = b"same" if number < 5 else b"key-%d" % number
        pair = (key, b"v" * (number * 7 % 30))
        log.append_as_leader(build_batch([pair], timestamp_ms=NOW_MS), 0, NOW_MS)
    log.offsets.restore_high_watermark(log.log_end_offset)
    plan = swap_begun(files, log)
    log.flusher.flush(NOW_MS)
    manager.checkpoints.write_all()
    files.fail("rename", after=renames)
    files.fail("unlink")
    with suppress(KafkaError):
        log.swap.discard(plan)
    (again,) = started(files, "/data").logs.values()
    assert again.log_end_offset == 30
    for segment in again.segments:
        for offset in offsets_of(segment):
            located = segment.locate(offset)
            assert located is not None
            assert located[2] == offset


@pytest.mark.parametrize("renames", range(3))
def test_no_room_for_a_longer_name_leaves_nothing_of_a_swap(renames: int) -> None:
    full = OSError(errno.ENOSPC, "no room for a longer name")
    files = MemoryFiles()
    manager = started(files, "/data")
    log = made(manager)
    log.roll(NOW_MS)
    files.fail("rename", after=renames, error=full)
    with pytest.raises(KafkaError):
        swap_begun(files, log)
    assert not log.offline
    # A start would put it in the place of what stands there by then.
    assert not [entry for entry in files.list_directory(log.directory) if entry.name.endswith(".swap")]
    unlink_unfinished(files, log.directory)
    plan = swap_begun(files, log)
    files.fail("rename", after=renames, error=full)
    for path in log.swap.discard(plan):
        files.unlink(path)
    assert not [entry for entry in files.list_directory(log.directory) if ".log." in entry.name]
    assert len(all_records(log)) == 12


def offsets_of(segment: Any) -> list[int]:
    return [one.base_offset for one in segment.scan(verify_crc=False)]


# Moves


def test_a_crash_after_a_move_forgets_no_producer() -> None:
    files = MemoryFiles()
    manager = started(files, *FOLDERS)
    log = made(manager, count=0)
    log.append_as_leader(sequenced(7, 3, 0), 0, NOW_MS)
    for _ in range(12):
        log.append_as_leader(batch(1), 0, NOW_MS)
    log.offsets.restore_high_watermark(log.log_end_offset)
    log.retention.delete_segments(log.segments_count - 1, NOW_MS)
    log.flusher.flush(NOW_MS)
    moved_to(manager, log, "/more")
    manager.checkpoints.write_all()
    again = started(files, *FOLDERS).logs["orders", 0]
    assert again.producers.entries[7].epoch == 3
    assert read_offsets(again, again.first_segment_offset) == list(range(again.first_segment_offset, 13))


def test_a_power_cut_in_a_second_move_finds_one_newer_copy() -> None:
    """The first move was cut short before its marker went, the second loses the rename of the original."""
    files = MemoryFiles()
    manager = started(files, *FOLDERS)
    moved_to(manager, made(manager), "/more")
    manager.checkpoints.write_all()
    manager = started(files, *FOLDERS)
    log = manager.logs["orders", 0]
    original = log.directory
    log.offsets.restore_high_watermark(log.log_end_offset)
    moved = moved_to(manager, log, "/data")
    (aside,) = [one.name for one in files.list_directory("/more") if one.name.endswith("-delete")]
    files.rename(f"/more/{aside}", original)
    assert started(files, *FOLDERS).logs["orders", 0].directory == moved.directory


class FullFiles(MemoryFiles):
    """No byte more goes below `full`."""

    full = "-"

    def count(self, operation: str, path: str) -> int | None:
        if operation == "write" and path.startswith(self.full):
            raise OSError(errno.ENOSPC, "no room", path)
        return super().count(operation, path)


def test_a_move_away_from_a_full_disk_needs_no_room_there() -> None:
    files = FullFiles()
    manager = started(files, *FOLDERS)
    log = made(manager)
    log.configure(log_config(segment_bytes=100_000, index_interval_bytes=100))
    for number in range(20):
        log.append_as_leader(batch(1, timestamp_ms=NOW_MS + number), 0, NOW_MS)
    files.full = "/data/"
    move = manager.moves.begin(("orders", 0), manager.folders[1])
    with suppress(KafkaError):
        log.roll(NOW_MS)  # retention does that, too; the index entries of what was the active segment must wait
    plans = 0
    while (plan := move.plan()) is not None:
        plan.run()
        move.copied(plan)
        plans += 1
        assert plans < 20
    assert move.is_caught_up()
    entries = [(one.offset_index.entries, one.time_index.last()) for one in log.segments]
    moved = manager.finish_move(move)[0]
    assert [one.largest_timestamp_ms for one in moved.segments if one.size_bytes][-1] == NOW_MS + 19
    assert [(one.offset_index.entries, one.time_index.last()) for one in moved.segments] == entries
    assert moved.segments[-2].offset_index.entries > 5
    assert moved.recovery_point <= moved.segments[-2].base_offset
    moved.flusher.flush(NOW_MS)
    manager.folders[0].failure = OSError(errno.ENOSPC, "its checkpoints cannot be written")
    manager.checkpoints.write_all()
    manager.folders[0].failure = None
    again = started(files, *FOLDERS).logs["orders", 0]
    assert [one.largest_timestamp_ms for one in again.segments if one.size_bytes][-1] == NOW_MS + 19
    assert read_offsets(again, 0) == list(range(32))
