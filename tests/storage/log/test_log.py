"""A log's life: opening, truncation, retention, flushing, closing."""

from __future__ import annotations

import errno
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.turns import run_all
from gregor.storage.folders.checkpoint_contents import offset_of
from gregor.storage.folders.checkpoints import LOG_START_OFFSET_FILE, RECOVERY_POINT_FILE
from gregor.storage.log.log import Log
from tests.storage.logs import DIRECTORY, NOW_MS, batch, log_config, open_log, read_offsets, sequenced
from tests.storage.memory_files import MemoryFile, MemoryFiles

BATCH_BYTES = len(batch())


def filled_log(files: MemoryFiles, count: int = 20, *, now_ms: int = NOW_MS, **settings: object) -> Log:
    """A committed log of `count` records, five to a segment, each a second later than the one before."""
    log = open_log(files, **{"segment_bytes": 5 * BATCH_BYTES, **settings})
    for number in range(count):
        log.append_as_leader(batch(timestamp_ms=now_ms + 1000 * number), 0, now_ms + 1000 * number)
    log.offsets.restore_high_watermark(log.log_end_offset)
    return log


def names(files: MemoryFiles) -> set[str]:
    return {entry.name for entry in files.list_directory(DIRECTORY)}


def base_offsets(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


# Opening and closing


def test_new_log_is_empty_and_begins_where_it_is_told() -> None:
    files = MemoryFiles()
    log = open_log(files, log_start_offset=42)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.recovery_point) == (42, 42, 42, 0)
    assert (log.size_bytes, log.segments_count, log.latest_epoch()) == (0, 1, None)
    assert log.read(42, 100, 42).size_bytes == 0
    assert log.append_as_leader(batch(), 0, NOW_MS).first_offset == 42
    assert f"{42:020d}.log" in names(files)


def test_reopened_log_is_as_it_was_closed() -> None:
    files = MemoryFiles()
    log = filled_log(files, 12, index_interval_bytes=100)
    log.append_as_leader(sequenced(7, 0, 0), 4, NOW_MS)
    log.close(clean=True)
    again = open_log(files, segment_bytes=5 * BATCH_BYTES, index_interval_bytes=100, recovery_point=13)
    assert (again.log_start_offset, again.log_end_offset, again.recovery_point) == (0, 13, 13)
    assert base_offsets(again) == base_offsets(log)
    assert again.epochs.entries() == [(0, 0), (4, 12)]
    assert again.producers.entries[7].next_sequence == 1
    assert read_offsets(again, 0) == list(range(13))
    assert again.append_as_leader(batch(), 4, NOW_MS).first_offset == 13


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=25), st.integers(0, 300), st.data())
def test_restarts_do_not_show_in_the_files(sizes: list[int], interval: int, data: st.DataObject) -> None:
    """Closing and opening changes nothing but this: a time index gets its last entry earlier."""
    limits = {"segment_bytes": 700, "index_interval_bytes": interval}
    files, twin_files = MemoryFiles(), MemoryFiles()
    log, twin = open_log(files, **limits), open_log(twin_files, **limits)
    restarts = data.draw(st.sets(st.integers(0, len(sizes) - 1), max_size=4))
    for number, size in enumerate(sizes):
        for target in (log, twin):
            target.append_as_leader(batch(size % 3 + 1, size=10 * size, timestamp_ms=NOW_MS + number), 0, NOW_MS)
        if number in restarts:
            log.close(clean=True)
            log = open_log(files, **limits)
    assert base_offsets(log) == base_offsets(twin)
    assert log.log_end_offset == twin.log_end_offset
    for segment, other in zip(log.segments, twin.segments, strict=True):
        for active in (segment, other):
            active.offset_index.write_pending()
        for suffix in (".log", ".index"):
            assert files.read_bytes(segment.stem + suffix) == twin_files.read_bytes(other.stem + suffix)
        segment.load_timestamps()
        expected = other.max_timestamp, other.max_timestamp_offset
        assert (segment.max_timestamp, segment.max_timestamp_offset) == expected
        for timestamp in range(NOW_MS - 1, NOW_MS + len(sizes) + 1):
            assert run_all(log.offset_for_timestamp(timestamp)) == run_all(twin.offset_for_timestamp(timestamp))


def test_closed_log_holds_no_descriptors_and_everything_is_durable() -> None:
    files = MemoryFiles()
    log = filled_log(files, 7)
    log.close(clean=True)
    files.crash()
    again = open_log(files)
    assert read_offsets(again, 0) == list(range(7))
    assert f"{7:020d}.snapshot" in names(files)


def test_close_after_a_crash_writes_nothing() -> None:
    files = MemoryFiles()
    log = filled_log(files, 7)
    before = names(files)
    writes = files.calls["write"], files.calls["write_atomically"]
    log.close(clean=False)
    assert names(files) == before
    assert (files.calls["write"], files.calls["write_atomically"]) == writes


def test_torn_batch_at_the_end_is_cut_when_opening() -> None:
    files = MemoryFiles()
    log = filled_log(files, 3)
    log.close(clean=True)
    files.open(log.segments[-1].log.path).write(bytes(batch())[:50])
    again = open_log(files)
    assert again.log_end_offset == 3
    assert files.open(again.segments[-1].log.path).size_bytes() == 3 * BATCH_BYTES


def test_damaged_epoch_file_is_made_again_from_the_batches() -> None:
    files = MemoryFiles()
    log = open_log(files, segment_bytes=2 * BATCH_BYTES)
    for epoch in (1, 1, 1, 4, 4, 9):
        log.append_as_leader(batch(), epoch, NOW_MS)
    log.close(clean=True)
    files.create(f"{DIRECTORY}/leader-epoch-checkpoint").write(b"\0" * 12)
    assert open_log(files).epochs.entries() == [(1, 0), (4, 3), (9, 5)]
    assert files.read_bytes(f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n3\n1 0\n4 3\n9 5\n"


def test_epochs_of_what_is_no_longer_in_the_log_are_forgotten_when_opening() -> None:
    files = MemoryFiles()
    log = filled_log(files, 12)
    log.close(clean=True)
    files.write_atomically(f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n3\n0 0\n1 4\n7 40\n")
    assert open_log(files, log_start_offset=6).epochs.entries() == [(1, 4)]


def test_log_without_snapshots_is_not_read_for_producers() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_leader(sequenced(7, 0, 0), 0, NOW_MS)
    log.close(clean=False)
    assert open_log(files).producers.entries == {}


# Truncation


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=15), st.data())
def test_truncated_log_is_as_if_the_rest_was_never_appended(counts: list[int], data: st.DataObject) -> None:
    limits = {"segment_bytes": 600, "index_interval_bytes": 100}
    files, twin_files = MemoryFiles(), MemoryFiles()
    log = open_log(files, **limits)
    for number, count in enumerate(counts):
        log.append_as_leader(sequenced(number % 2, 0, number // 2 * 5, count), number // 3, NOW_MS + number)
        log.producers.entries[number % 2].next_sequence = (number // 2 + 1) * 5
    offset = data.draw(st.integers(0, sum(counts) + 2))
    log.offsets.restore_high_watermark(data.draw(st.integers(0, log.log_end_offset)))
    high_watermark = log.high_watermark
    end_offset = log.log_end_offset

    kept, kept_offset = 0, 0
    while kept < len(counts) and kept_offset + counts[kept] <= offset:
        kept_offset += counts[kept]
        kept += 1
    twin = open_log(twin_files, **limits)
    for number, count in enumerate(counts[:kept]):
        twin.append_as_leader(sequenced(number % 2, 0, number // 2 * 5, count), number // 3, NOW_MS + number)
        twin.producers.entries[number % 2].next_sequence = (number // 2 + 1) * 5

    log.truncate_to(offset)
    assert log.log_end_offset == min(offset, end_offset)
    assert log.high_watermark == min(offset, high_watermark)
    assert read_offsets(log, 0) == list(range(kept_offset))
    assert {number: entry.batches[-1:] for number, entry in log.producers.entries.items()} == {
        number: entry.batches[-1:] for number, entry in twin.producers.entries.items()
    }
    assert [(epoch, start) for epoch, start in log.epochs.entries()] == [
        (epoch, start) for epoch, start in twin.epochs.entries() if start < offset
    ] or offset > kept_offset
    assert [name for name in sorted(names(files)) if name.endswith(".log")] == [
        f"{base:020d}.log" for base in base_offsets(log)
    ]
    info = log.append_as_leader(batch(), 99, NOW_MS)
    assert info.first_offset == log.log_end_offset - 1 == min(offset, end_offset)
    assert read_offsets(log, 0) == [*range(kept_offset), info.first_offset]
    log.close(clean=True)
    assert read_offsets(open_log(files), 0) == [*range(kept_offset), info.first_offset]


@pytest.mark.parametrize("offset", [3, 10, 12])
@pytest.mark.parametrize("rolled_only", [False, True])
def test_what_was_cut_off_does_not_come_back_once_that_is_synced(offset: int, rolled_only: bool) -> None:
    files = MemoryFiles()
    log = filled_log(files, 14)
    assert {3, 12}.isdisjoint(base_offsets(log)) and 10 in base_offsets(log)
    log.flusher.flush()
    assert not log.flusher.is_truncated and not log.flusher.is_due(NOW_MS)
    log.truncate_to(offset)
    assert log.flusher.is_truncated and log.flusher.is_due(NOW_MS)
    plan = log.flusher.plan(NOW_MS, rolled_only=rolled_only)
    assert plan is not None
    plan.run()
    log.flusher.flushed(plan)
    assert not log.flusher.is_truncated
    files.crash()
    assert read_offsets(open_log(files), 0) == list(range(offset))


def test_a_cut_that_is_followed_by_another_is_not_synced_with_the_first() -> None:
    log = filled_log(MemoryFiles(), 14)
    log.truncate_to(12)
    plan = log.flusher.plan(NOW_MS)
    assert plan is not None
    plan.run()
    log.truncate_to(11)
    log.flusher.flushed(plan)
    assert log.flusher.is_truncated


def test_truncation_below_the_log_begins_anew() -> None:
    files = MemoryFiles()
    log = filled_log(files)
    log.retention.delete_segments(2, NOW_MS)
    log.truncate_to(3)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (3, 3, 3)
    assert log.epochs.entries() == []
    assert base_offsets(log) == [3]


def test_truncate_fully_leaves_an_empty_log() -> None:
    files = MemoryFiles()
    log = filled_log(files)
    log.append_as_leader(sequenced(7, 0, 0), 0, NOW_MS)
    log.truncate_fully_and_start_at(1000, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (1000, 1000, 1000)
    assert log.producers.entries == {}
    assert {name for name in names(files) if not name.endswith(".deleted")} == {
        *(f"{1000:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")),
        "leader-epoch-checkpoint",
    }
    assert log.append_as_leader(batch(), 5, NOW_MS).first_offset == 1000


def test_truncation_to_the_end_forgets_an_epoch_without_records() -> None:
    log = filled_log(MemoryFiles(), 3)
    log.assign_epoch(5, 3)
    log.truncate_to(3)
    assert log.epochs.entries() == [(0, 0)]


def test_negative_truncation_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="-1"):
        open_log(MemoryFiles()).truncate_to(-1)


def test_failed_truncation_takes_the_log_offline() -> None:
    files = MemoryFiles()
    log = filled_log(files, 7)
    files.fail("truncate")
    with pytest.raises(KafkaError) as raised:
        log.truncate_to(6)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError):
        log.append_as_leader(batch(), 0, NOW_MS)


@pytest.mark.parametrize(("operation", "after"), [("unlink", 0), ("unlink", 4), ("create", 0), ("create", 2)])
def test_failed_truncation_of_everything_leaves_a_log_that_can_be_asked(operation: str, after: int) -> None:
    files = MemoryFiles()
    log = filled_log(files, 7)
    files.fail(operation, after)
    with pytest.raises(KafkaError):
        log.truncate_fully_and_start_at(100)
    # As the next checkpoints do it.
    assert [offset_of(name, log) for name in (LOG_START_OFFSET_FILE, RECOVERY_POINT_FILE)] in ([None, 0], [None, 7])
    assert log.offline
    log.close(clean=False)


def test_truncation_cut_short_leaves_no_gap() -> None:
    files = MemoryFiles()
    log = filled_log(files, 20)
    files.fail("unlink", 4)
    with pytest.raises(KafkaError):
        log.truncate_to(6)
    assert read_offsets(open_log(files), 0) == list(range(15))


def test_truncation_below_a_rolled_segment_asks_for_no_flush_of_it() -> None:
    log = filled_log(MemoryFiles(), 7)
    log.truncate_to(3)
    log.flusher.flush()
    assert not log.flusher.is_due(NOW_MS)


# Retention


def test_old_segments_are_renamed_with_all_their_files() -> None:
    files = MemoryFiles()
    log = filled_log(files, retention_ms=10_000)
    paths = log.retention.delete_due(NOW_MS + 9_000 + 10_001)
    assert base_offsets(log) == [10, 15]
    assert log.log_start_offset == 10
    assert sorted(paths) == sorted(
        f"{DIRECTORY}/{base:020d}{suffix}.deleted"
        for base, suffixes in (
            (0, (".log", ".index", ".timeindex")),
            (5, (".log", ".index", ".timeindex", ".snapshot")),
        )
        for suffix in suffixes
    )
    assert all(files.exists(path) for path in paths)
    assert log.epochs.entries() == [(0, 0)]
    assert read_offsets(log, 10) == list(range(10, 20))
    assert log.retention.delete_due(NOW_MS + 9_000 + 10_001) == []


def test_a_disk_without_room_for_longer_names_keeps_retention_from_nothing() -> None:
    files = MemoryFiles()
    log = filled_log(files, retention_ms=8000)
    piece = log.read(2, 1000, 20)
    expected = piece.read()
    for after in range(8):  # three files and a snapshot of each segment
        files.fail("rename", after, OSError(errno.ENOSPC, "no room for a longer name"))
    left = log.retention.delete_due(NOW_MS + 20_000)
    assert base_offsets(log) == [10, 15]
    assert left == []
    assert sorted(name for name in names(files) if name.endswith(".log")) == [f"{10:020d}.log", f"{15:020d}.log"]
    assert piece.read() == expected
    piece.release()


def test_retention_by_size_keeps_that_much() -> None:
    log = filled_log(MemoryFiles(), retention_bytes=11 * BATCH_BYTES, retention_ms=-1)
    log.retention.delete_due(NOW_MS)
    assert base_offsets(log) == [5, 10, 15]


def test_nothing_above_the_high_watermark_goes() -> None:
    log = filled_log(MemoryFiles(), retention_ms=0)
    log.offsets.restore_high_watermark(9)
    log.retention.delete_due(NOW_MS + 1_000_000)
    assert base_offsets(log) == [5, 10, 15]


def test_last_segment_is_rolled_before_it_goes() -> None:
    files = MemoryFiles()
    log = filled_log(files, retention_ms=0)
    paths = log.retention.delete_due(NOW_MS + 1_000_000)
    assert base_offsets(log) == [20]
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (20, 20, 0)
    assert len([path for path in paths if path.endswith(".log.deleted")]) == 4
    assert log.append_as_leader(batch(), 0, NOW_MS).first_offset == 20
    log.close(clean=True)
    assert open_log(files).log_start_offset == 20


def test_log_start_offset_hides_records_and_lets_whole_segments_go() -> None:
    log = filled_log(MemoryFiles(), retention_ms=-1, retention_bytes=-1)
    log.retention.advance_log_start_offset(12)
    log.retention.advance_log_start_offset(7)  # never back
    assert log.log_start_offset == 12
    assert base_offsets(log) == [0, 5, 10, 15]
    log.retention.delete_due(NOW_MS)
    assert base_offsets(log) == [10, 15]
    assert log.log_start_offset == 12
    with pytest.raises(KafkaError) as raised:
        log.retention.advance_log_start_offset(21)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_compacted_topic_keeps_its_segments() -> None:
    log = filled_log(MemoryFiles(), retention_ms=0, cleanup_policy=frozenset({"compact"}))
    assert log.retention.delete_due(NOW_MS + 1_000_000) == []


def test_idle_producers_expire() -> None:
    log = open_log(MemoryFiles())
    log.append_as_leader(sequenced(7, 0, 0), 0, NOW_MS)
    log.producers.expire(NOW_MS + 86_399_999)
    assert list(log.producers.entries) == [7]
    log.producers.expire(NOW_MS + 86_400_000)
    assert log.producers.entries == {}


# Flushing


def test_flush_makes_everything_up_to_the_end_durable() -> None:
    files = MemoryFiles()
    log = filled_log(files, 12)
    plan = log.flusher.plan(NOW_MS + 7)
    assert plan is not None
    log.append_as_leader(batch(), 0, NOW_MS)  # while a thread runs the plan
    plan.run()
    assert log.recovery_point == 0
    log.flusher.flushed(plan)
    assert (log.recovery_point, log.offsets.unflushed_messages, log.flusher.last_flush_ms) == (12, 1, NOW_MS + 7)
    files.crash()
    again = open_log(files)
    assert read_offsets(again, 0)[:12] == list(range(12))
    assert again.epochs.entries() == [(0, 0)]
    assert {f"{5:020d}.snapshot", f"{10:020d}.snapshot"} <= names(files)
    for segment in again.segments[:-1]:
        assert files.read_bytes(f"{segment.stem}.timeindex") != b""


def test_nothing_is_planned_when_nothing_was_written() -> None:
    log = filled_log(MemoryFiles(), 3)
    log.flusher.flush()
    assert log.flusher.plan() is None
    log.append_as_leader(batch(), 0, NOW_MS)
    assert log.flusher.plan() is not None


def test_flush_of_what_was_rolled_leaves_the_active_segment_alone() -> None:
    files = MemoryFiles()
    log = filled_log(files, 12)
    assert log.flusher.is_due(NOW_MS)
    plan = log.flusher.plan(rolled_only=True)
    assert plan is not None
    plan.run()
    log.flusher.flushed(plan)
    assert log.recovery_point == 10
    assert not log.flusher.is_due(NOW_MS)
    assert log.flusher.plan(rolled_only=True) is None


@pytest.mark.parametrize(("settings_", "due"), [({"flush_messages": 3}, 3), ({"flush_ms": 5000}, None), ({}, None)])
def test_flush_is_due_by_messages_and_by_time(settings_: dict[str, int], due: int | None) -> None:
    log = open_log(MemoryFiles(), **settings_)
    assert not log.flusher.is_due(NOW_MS + 10_000)
    for number in range(1, 5):
        log.append_as_leader(batch(), 0, NOW_MS)
        assert log.flusher.is_due(NOW_MS + 4999) == (due is not None and number >= due)
    assert log.flusher.is_due(NOW_MS + 5000) == bool(settings_)
    log.flusher.flush(NOW_MS + 5000)
    assert not log.flusher.is_due(NOW_MS + 9999)


def test_truncation_during_a_flush_voids_it() -> None:
    files = MemoryFiles()
    log = filled_log(files, 12)
    plan = log.flusher.plan()
    assert plan is not None
    plan.run()
    log.truncate_to(2)
    for _ in range(10):
        log.append_as_leader(batch(), 1, NOW_MS)
    log.flusher.flushed(plan)
    assert log.recovery_point == 0
    log.flusher.flush()
    files.crash()
    assert read_offsets(open_log(files), 0) == list(range(12))


def test_plan_that_never_ran_changes_nothing() -> None:
    log = filled_log(MemoryFiles(), 7)
    plan = log.flusher.plan()
    assert plan is not None
    log.flusher.flushed(plan)
    assert log.recovery_point == 0
    again = log.flusher.plan()
    assert again is not None
    assert (again.offset, again.directory, again.paths) == (plan.offset, plan.directory, plan.paths)


def test_segment_deleted_during_a_flush_is_no_trouble() -> None:
    files = MemoryFiles()
    log = filled_log(files, 12)
    plan = log.flusher.plan()
    assert plan is not None
    for path in log.retention.delete_segments(2, NOW_MS):
        files.unlink(path)
    plan.run()
    log.flusher.flushed(plan)
    assert log.recovery_point == 12


def test_a_deletion_that_fails_half_way_is_gone_on_with() -> None:
    """After any rename fails, the log is intact, and the next attempt returns all files that are to be unlinked."""
    renames = 7  # of two segments and a snapshot
    for failing in range(renames):
        files = MemoryFiles()
        log = open_log(files, segment_bytes=300)
        for _ in range(12):
            log.append_as_leader(sequenced(7, 0, log.log_end_offset), 0, NOW_MS)
        log.offsets.restore_high_watermark(log.log_end_offset)
        bases = [one.base_offset for one in log.segments]
        assert len(bases) > 3
        files.fail("rename", after=failing)
        with pytest.raises(KafkaError, match="cannot delete a segment"):
            log.retention.delete_segments(2, NOW_MS)
        assert not log.offline
        assert log.log_start_offset == bases[2]
        assert read_offsets(log, bases[2]) == list(range(bases[2], 12))
        left = [one.base_offset for one in log.segments].index(bases[2])
        paths = log.retention.delete_segments(left, NOW_MS)
        assert [one.base_offset for one in log.segments] == bases[2:]
        marked = {f"{DIRECTORY}/{one.name}" for one in files.list_directory(DIRECTORY) if ".deleted" in one.name}
        assert set(paths) == marked
        assert len(paths) == len(marked) == renames
        assert log.retention.delete_segments(0, NOW_MS) == []


@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
def test_failed_sync_takes_the_log_offline(operation: str) -> None:
    files = MemoryFiles()
    log = filled_log(files, 3)
    files.fail(operation)
    with pytest.raises(KafkaError) as raised:
        log.flusher.flush()
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline
    assert log.recovery_point == 0
    with pytest.raises(KafkaError):
        log.append_as_leader(batch(), 0, NOW_MS)


def test_flush_that_cannot_be_planned_holds_nothing() -> None:
    files = MemoryFiles()
    log = filled_log(files, 12)
    files.unlink(f"{DIRECTORY}/{5:020d}.timeindex")
    with pytest.raises(KafkaError):
        log.flusher.plan()
    assert {cast(MemoryFile, file).holds for segment in log.segments for file in segment.files()} == {0}


def test_partition_deleted_during_a_flush_is_no_trouble() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_leader(batch(), 0, NOW_MS)
    plan = log.flusher.plan()
    assert plan is not None
    files.rename(DIRECTORY, DIRECTORY + "-gone")
    plan.run()
    log.flusher.flushed(plan)
    assert not log.offline


def test_long_log_is_flushed_in_several_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gregor.storage.log.flush.MAX_SEGMENTS_PER_FLUSH", 2)
    files = MemoryFiles()
    log = filled_log(files, 18)
    points = []
    while log.offsets.unflushed_messages:
        log.flusher.flush()
        points.append(log.recovery_point)
    assert points == [10, 18]
    files.crash()
    assert read_offsets(open_log(files), 0) == list(range(18))


def test_a_log_that_cannot_be_due_for_a_flush_says_so() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_leader(batch(), 0, NOW_MS)
    assert not log.flusher.flushes_soon
    assert not log.flusher.is_due(NOW_MS + 10**12)
    log.roll(NOW_MS)
    assert log.flusher.flushes_soon
    assert log.flusher.is_due(NOW_MS)
    log.flusher.flush(NOW_MS)
    assert not log.flusher.flushes_soon
    for config in (log_config(flush_ms=1), log_config(flush_messages=10)):
        log.configure(config)
        assert log.flusher.flushes_soon
    log.configure(log_config())
    assert not log.flusher.flushes_soon
