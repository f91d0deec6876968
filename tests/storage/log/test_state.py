"""gregor.storage.log.state: the segment list stays consistent, and the shared state does not keep a log alive."""

from __future__ import annotations

from contextlib import suppress
from weakref import ref

import pytest

from gregor.protocol.errors import KafkaError
from gregor.protocol.turns import run_all
from gregor.storage.log.log import Log
from gregor.storage.log.state import MAX_KNOWN_POSITIONS, LogOffsets, LongWork, Segments
from gregor.storage.segment.segment import Segment
from tests.storage.log.test_log import BATCH_BYTES, filled_log
from tests.storage.logs import DIRECTORY, NOW_MS, batch, log_config, open_log, sequenced
from tests.storage.memory_files import MemoryFiles
from tests.support.cycles import left_in_cycles


def test_a_dropped_log_is_freed_without_a_collection() -> None:
    """This holds after any use of its parts; objects that it has handed out may outlive it."""
    files = MemoryFiles()
    handed_out: list[object] = []

    def live() -> None:
        complaints: list[Log] = []
        log = filled_log(files, on_error=lambda failed, _error: complaints.append(failed), retention_bytes=3000)
        log.append_as_leader(sequenced(7, 0, 0), 1, NOW_MS)
        log.append_as_leader(sequenced(7, 0, 0), 1, NOW_MS)
        log.configure(log_config(segment_bytes=6 * BATCH_BYTES, retention_bytes=5 * BATCH_BYTES))
        log.flusher.flush(NOW_MS)
        run_all(log.offset_for_timestamp(NOW_MS + 1000))
        run_all(log.offset_of_max_timestamp())
        handed_out.extend([log.read(3, 1000, 20), log.read(4, 1000, 20, waits_for_disk=False), log.append_as_leader])
        handed_out.append(log.offset_for_timestamp(NOW_MS))
        log.offsets.restore_high_watermark(log.log_end_offset)
        for path in log.retention.delete_due(NOW_MS):
            files.unlink(path)
        log.truncate_to(17, NOW_MS)
        copy = open_log(files, "/data/copy-0", log_start_offset=16)
        copy.truncate_fully_and_start_at(16)
        copy.append_as_follower(log.read(16, 1000, 17).read(), NOW_MS)
        copy.close(clean=True)
        log.roll(NOW_MS)
        files.shorten(3)
        with suppress(KafkaError):
            log.append_as_leader(batch(), 1, NOW_MS)
        assert complaints == [log]
        complaints.clear()
        log.close(clean=True)
        dropped.append(ref(log))

    dropped: list[ref[Log]] = []
    assert left_in_cycles(live) == set()
    assert [log() for log in dropped] == [None]
    assert len(handed_out) == 4


def test_an_error_of_a_part_that_outlives_its_log_is_reported_to_nobody() -> None:
    files = MemoryFiles()
    complaints: list[OSError] = []
    log = filled_log(files, 2, on_error=lambda _log, error: complaints.append(error))
    append = log.append_as_leader
    files.fail("write")
    with pytest.raises(KafkaError, match="cannot append"):
        append(batch(), 0, NOW_MS)
    assert len(complaints) == 1
    del log
    files.fail("write")
    with pytest.raises(KafkaError, match="cannot append"):
        append(batch(), 0, NOW_MS)
    assert len(complaints) == 1


# Segments


def segments_at(*bases: int) -> Segments:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    items = [Segment.create(files, DIRECTORY, base, now_ms=NOW_MS) for base in bases]
    return Segments(files, DIRECTORY, items, names_changed=False)


def bases_of(segments: Segments) -> list[int]:
    assert segments.bases == [segment.base_offset for segment in segments.items]
    return segments.bases


def test_an_offset_lies_in_the_last_segment_that_begins_at_or_below_it() -> None:
    segments = segments_at(5, 10, 20)
    assert [segments.index_of(offset) for offset in (0, 5, 9, 10, 19, 20, 99)] == [0, 0, 0, 1, 1, 2, 2]


def test_a_new_active_segment_comes_last_and_is_noted_for_the_next_sync() -> None:
    segments = segments_at(0)
    segments.remember(3, 100)
    segments.add_active(segments.create(7, NOW_MS))
    assert bases_of(segments) == [0, 7]
    assert segments.active is segments.items[-1]
    assert segments.names_changed
    assert not segments.positions


def test_segments_are_removed_at_both_ends_and_replaced_in_the_middle() -> None:
    segments = segments_at(0, 10, 20, 30, 40)
    assert segments.mark_first_deleted()
    assert segments.names_changed
    segments.sync_planned()
    segments.replace(slice(0, 2), segments.create(10, NOW_MS))
    assert bases_of(segments) == [10, 30, 40]
    assert segments.names_changed
    segments.remove_from(2)
    assert bases_of(segments) == [10, 30]


def test_a_truncation_changes_the_generation_and_forgets_positions() -> None:
    segments = segments_at(0)
    segments.remember(3, 100)
    segments.truncated()
    assert segments.generation == 1
    assert not segments.positions


def test_only_so_many_positions_are_remembered() -> None:
    segments = segments_at(0)
    for offset in range(3 * MAX_KNOWN_POSITIONS + 1):
        segments.remember(offset, offset)
        assert segments.positions[offset] == offset
        assert len(segments.positions) <= MAX_KNOWN_POSITIONS


def offsets_of(offsets: LogOffsets) -> tuple[int, int, int, int]:
    return offsets.log_start_offset, offsets.high_watermark, offsets.recovery_point, offsets.log_end_offset


def test_truncation_lowers_all_offsets_and_notes_a_lower_recovery_point() -> None:
    offsets = LogOffsets(10, 100, 60)
    offsets.cleaned_offset = offsets.high_watermark = 90
    offsets.truncate_to(80)
    assert offsets_of(offsets) == (10, 80, 60, 80)
    assert offsets.cleaned_offset == 80
    assert not offsets.recovery_point_fell
    offsets.truncate_to(5)
    assert offsets_of(offsets) == (5, 5, 5, 5)
    assert offsets.recovery_point_fell


def test_log_that_restarts_above_its_end_has_nothing_to_sync() -> None:
    offsets = LogOffsets(10, 100, 60)
    offsets.restart_at(200)
    assert offsets_of(offsets) == (200, 200, 200, 200)
    assert not offsets.recovery_point_fell


def test_log_start_offset_rises_to_the_high_watermark_at_most() -> None:
    offsets = LogOffsets(10, 100, 60)
    offsets.high_watermark = 50
    assert offsets.advance_log_start(50)
    assert not offsets.advance_log_start(20)
    with pytest.raises(KafkaError, match="offset 51 is beyond the high watermark 50"):
        offsets.advance_log_start(51)
    assert offsets.log_start_offset == 50


def test_recovery_point_rises_with_a_sync_and_stays_below_a_new_segment() -> None:
    offsets = LogOffsets(0, 100, 60)
    offsets.synced_below(80)
    offsets.synced_below(70)
    assert offsets.recovery_point == 80
    offsets.segment_began(90)
    assert offsets.recovery_point == 80
    offsets.segment_began(80)
    assert offsets.recovery_point == 79


def test_no_compaction_begins_beside_another_one_or_a_move() -> None:
    work = LongWork()
    assert work.lets_clean
    work.begin_cleaning()
    assert not work.lets_clean
    work.begin_move()
    work.end_cleaning()
    assert not work.lets_clean
    work.cancel_move()
    assert work.lets_clean


def test_offsets_of_a_checkpoint_are_restored_within_the_log() -> None:
    offsets = LogOffsets(10, 30, 99)
    assert (offsets.recovery_point, offsets.unflushed_messages) == (30, 0)
    restored = []
    for stored in (9, 20, 31):
        offsets.restore_high_watermark(stored)
        restored.append(offsets.high_watermark)
    assert restored == [10, 20, 30]


def test_a_lower_recovery_point_is_reported_once() -> None:
    log = filled_log(MemoryFiles())
    log.flusher.flush(NOW_MS)
    assert not log.offsets.acknowledge_lower_recovery_point()
    log.truncate_to(3, NOW_MS)
    assert [log.offsets.acknowledge_lower_recovery_point() for _ in range(2)] == [True, False]
