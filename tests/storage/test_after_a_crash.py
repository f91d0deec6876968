"""Data that a process wrote before its crash is visible, and may still not be on the disk: the next broker must not
treat it as synced because it is visible."""

from __future__ import annotations

from itertools import islice

import pytest

from gregor.storage.log.contents import LogIdentity
from gregor.storage.log.epochs import FILE_NAME as EPOCHS_FILE
from gregor.storage.log.log import Log
from gregor.storage.producers.state import DEFAULT_EXPIRATION_MS
from gregor.storage.recovery.recovery import FolderLoader, LogCheckpoint
from tests.storage.logs import DIRECTORY, NOW_MS, batch, log_config, open_log, read_offsets, sequenced
from tests.storage.memory_files import MemoryFiles
from tests.storage.recovery.test_recovery import ROLLING, load, written


def test_what_is_found_after_a_crash_is_synced_by_the_next_flush() -> None:
    files = written()
    first, _ = load(files)
    first.flusher.flush(NOW_MS)
    known = {one: (entry.epoch, entry.next_sequence) for one, entry in first.producers.entries.items()}
    files.crash()
    again, _ = load(files, recovery_point=first.recovery_point)
    assert read_offsets(again, 0) == list(range(first.log_end_offset))
    assert again.epochs.entries() == first.epochs.entries() == [(2, 0), (5, 11)]
    assert {one: (entry.epoch, entry.next_sequence) for one, entry in again.producers.entries.items()} == known


def test_a_snapshot_of_the_crashed_process_is_synced_though_it_is_not_taken_again() -> None:
    files = written()
    found, _ = load(files)  # writes a snapshot at the end
    files.sync_directory(DIRECTORY)
    load(files)  # crashed again at once
    log, _ = load(files)
    log.flusher.flush(NOW_MS)
    files.crash()
    assert files.read_bytes(f"{DIRECTORY}/{found.log_end_offset:020d}.snapshot")


def test_lost_leader_epochs_are_read_from_all_batches() -> None:
    files = written()
    expected = load(files)[0].epochs.entries()
    for lost in (
        lambda: files.unlink(f"{DIRECTORY}/{EPOCHS_FILE}"),
        lambda: files.create(f"{DIRECTORY}/{EPOCHS_FILE}"),
    ):
        lost()
        assert load(files, recovery_point=12)[0].epochs.entries() == expected
        lost()
        assert open_log(files, **ROLLING).epochs.entries() == expected


def test_the_producer_of_the_batch_that_the_log_starts_in_is_known() -> None:
    files = MemoryFiles()
    log = open_log(files, **ROLLING)
    log.append_as_leader(batch(3), 0, NOW_MS)
    log.append_as_leader(sequenced(7, 0, 0, 4), 0, NOW_MS)
    again, _ = load(files, log_start_offset=5)
    assert again.producers.entries[7].next_sequence == 4


def test_snapshots_behind_a_gap_that_a_power_cut_left_are_not_believed() -> None:
    """They know of batches that are gone: sent again, these would be treated as duplicates, and be lost."""
    files = MemoryFiles()
    log = open_log(files, **ROLLING)
    for number in range(12):
        log.append_as_leader(sequenced(7, 0, number), 0, NOW_MS)
    assert log.segments_count > 2
    lost = log.segments[-2]
    lost.log.truncate(0)
    log.segments[-1].log.truncate(0)
    again, _ = load(files)
    assert again.log_end_offset == log.segments[-1].base_offset
    assert again.producers.entries[7].next_sequence == lost.base_offset


def test_where_others_have_replicas_a_log_ends_at_a_gap() -> None:
    """It continues from there with the leader's records; with the gap it would be in sync, and lack records."""
    files = MemoryFiles()
    log = open_log(files, **ROLLING)
    for number in range(12):
        log.append_as_leader(sequenced(7, 0, number), 0, NOW_MS)
    second = log.segments[1]
    for suffix in (".log", ".index", ".timeindex"):
        files.unlink(second.log.path.replace(".log", suffix))
    assert load(files)[0].log_end_offset == 12
    # A log that is compacted up to behind the gap may have it from that.
    assert load(files, whole_from=log.segments[2].base_offset)[0].log_end_offset == 12
    # These starts have written it at the end, where it is the sign of a log that was closed.
    files.unlink(f"{DIRECTORY}/{12:020d}.snapshot")
    again, leftovers = load(files, whole_from=0)
    assert again.log_end_offset == second.base_offset
    assert again.segments_count == 1
    assert again.producers.entries[7].next_sequence == second.base_offset
    assert leftovers
    again.append_as_leader(sequenced(7, 0, second.base_offset), 0, NOW_MS)
    assert load(files, whole_from=0)[0].log_end_offset == second.base_offset + 1


def test_what_a_leader_has_compacted_is_no_gap_to_its_follower() -> None:
    """A segment that begins there begins where the one before it ends, not with its first batch."""
    files = MemoryFiles()
    log = open_log(files, **ROLLING)
    for offset in (0, 1, 2, 3, 9, 10, 30, 31, 50, 70, 71, 90):
        log.append_as_follower(batch(base_offset=offset), NOW_MS)
    assert log.segments_count > 2
    again, leftovers = load(files, whole_from=0)
    assert (again.log_end_offset, again.segments_count) == (91, log.segments_count)
    assert not leftovers
    assert read_offsets(again, 0) == [0, 1, 2, 3, 9, 10, 30, 31, 50, 70, 71, 90]


def followed_by_kafka() -> tuple[MemoryFiles, Log]:
    """The log of a follower of Apache Kafka whose leader has compacted offsets away where two segments begin."""
    files = MemoryFiles()
    log = open_log(files)
    for base_offset in (0, 10, 20):
        log.roll(NOW_MS, base_offset)
        for offset in range(base_offset, base_offset + 3):
            log.append_as_follower(batch(base_offset=offset), NOW_MS)
    return files, log


KAFKAS_OFFSETS = [0, 1, 2, 10, 11, 12, 20, 21, 22]


@pytest.mark.parametrize("sign", ["index", "timeindex", "snapshot", ""])
def test_gaps_that_apache_kafka_has_left_are_kept(sign: str) -> None:
    files, log = followed_by_kafka()
    last = log.segments[2]
    if sign == "snapshot":  # killed while it closed its logs
        log.producers.take_snapshot(23)
    elif sign:
        index = last.offset_index if sign == "index" else last.time_index
        index.file.truncate(100 * index.ENTRY_BYTES)
    again, leftovers = load(files, whole_from=0)
    if not sign:
        assert read_offsets(again, 0) == [0, 1, 2]
        return
    assert not leftovers
    assert read_offsets(again, 0) == KAFKAS_OFFSETS
    assert not again.segments[2].indexes_are_preallocated
    # Nothing of this is synced, and the next broker is killed, too.
    again.roll(NOW_MS, 23)
    again.append_as_follower(batch(base_offset=23), NOW_MS)
    again, leftovers = load(files, whole_from=0)
    assert not leftovers
    assert read_offsets(again, 0) == [*KAFKAS_OFFSETS, 23]
    # A gap behind it is one of a power cut all the same.
    again.roll(NOW_MS, 30)
    again.append_as_follower(batch(base_offset=30), NOW_MS)
    again, leftovers = load(files, whole_from=0)
    assert leftovers
    assert read_offsets(again, 0) == [*KAFKAS_OFFSETS, 23]


def test_a_start_that_is_killed_while_it_checks_keeps_the_gaps_of_apache_kafka() -> None:
    for steps in range(1, 5):
        files, log = followed_by_kafka()
        log.segments[2].time_index.file.truncate(1200)
        loader = FolderLoader(
            files, DIRECTORY, LogIdentity("orders", 0), log_config(), LogCheckpoint(0, 0, 0),
            producer_expiration_ms=DEFAULT_EXPIRATION_MS, now_ms=NOW_MS,
        )  # fmt: skip
        assert len(list(islice(loader.load(clean=False), steps))) == steps
        assert read_offsets(load(files, whole_from=0)[0], 0) == KAFKAS_OFFSETS


def test_a_recovery_point_beyond_the_end_vouches_for_nothing() -> None:
    files = written()
    log, _ = load(files, recovery_point=1000)
    assert log.recovery_point == 0


def test_a_time_index_that_ends_after_the_last_flush_is_complete_all_the_same() -> None:
    """The entry with the latest timestamp comes when a segment ends, and all of its batches may be synced by then."""
    files = MemoryFiles()
    log = open_log(files, segment_bytes=10_000)
    for timestamp_ms in (NOW_MS, NOW_MS + 5000):
        log.append_as_leader(batch(1, timestamp_ms=timestamp_ms), 0, NOW_MS)
    log.flusher.flush(NOW_MS)
    checkpoint = log.recovery_point
    log.roll(NOW_MS)
    assert log.flusher.is_due(NOW_MS)
    files.sync_directory(DIRECTORY)
    files.crash()
    for recovery_point in (checkpoint, log.recovery_point):
        again, _ = load(files, recovery_point=recovery_point)
        assert again.segments[0].largest_timestamp_ms == NOW_MS + 5000
    again.flusher.flush(NOW_MS)
    files.crash()
    assert load(files, recovery_point=again.recovery_point)[0].segments[0].largest_timestamp_ms == NOW_MS + 5000


def test_a_flush_after_a_roll_syncs_the_last_entry_of_the_time_index() -> None:
    files = MemoryFiles()
    log = open_log(files, segment_bytes=10_000)
    for timestamp_ms in (NOW_MS, NOW_MS + 5000):
        log.append_as_leader(batch(1, timestamp_ms=timestamp_ms), 0, NOW_MS)
    log.flusher.flush(NOW_MS)
    log.roll(NOW_MS)
    log.append_as_leader(batch(1), 0, NOW_MS)
    log.flusher.flush(NOW_MS)
    files.crash()
    assert load(files, recovery_point=3)[0].segments[0].largest_timestamp_ms == NOW_MS + 5000


@pytest.mark.parametrize("rolls", [1, 2])
@pytest.mark.parametrize("flushed_before", [False, True])
def test_a_roll_during_a_flush_leaves_the_last_entry_of_the_time_index_to_the_next_flush(
    rolls: int, flushed_before: bool
) -> None:
    files = MemoryFiles()
    log = open_log(files, segment_bytes=10_000)
    for timestamp_ms in (NOW_MS, NOW_MS + 5000):
        log.append_as_leader(batch(1, timestamp_ms=timestamp_ms), 0, NOW_MS)
    if flushed_before:
        log.flusher.flush(NOW_MS)
        log.assign_epoch(1, 2)  # which a flush must sync, too
    plan = log.flusher.plan(NOW_MS)
    assert plan is not None
    plan.run()
    for _ in range(rolls):
        log.roll(NOW_MS)
        log.append_as_leader(batch(1), 1, NOW_MS)
    log.flusher.flushed(plan)
    assert (log.recovery_point, log.flusher.is_due(NOW_MS), log.flusher.flushes_soon) == (1, True, True)
    log.flusher.flush(NOW_MS)
    assert log.recovery_point == 2 + rolls
    files.crash()
    assert load(files, recovery_point=log.recovery_point)[0].segments[0].largest_timestamp_ms == NOW_MS + 5000
