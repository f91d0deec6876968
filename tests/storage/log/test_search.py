"""Searching by timestamp: in short slices, and without a wait for what is on the disk alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.batch import Record, build_batch
from gregor.protocol.turns import ITEMS_PER_STEP, Steps, after_call, run_all
from gregor.storage.log import search
from gregor.storage.log.epochs import FILE_NAME as EPOCHS_FILE
from gregor.storage.log.log import Log
from gregor.storage.segment.segment import Segment
from tests.storage.logs import DIRECTORY, NOW_MS, log_config, old_message, open_log
from tests.storage.memory_files import MemoryFiles


def filled(files: MemoryFiles, batches: int, records: int = 5, **settings: object) -> Log:
    """Record n is of n ms after NOW_MS."""
    log = open_log(files, **settings)
    for number in range(batches):
        first = number * records
        some = [Record(n, NOW_MS + first + n, b"k", b"v" * 40, []) for n in range(records)]
        log.append_as_leader(build_batch(some, compression=number % 3), number // 4, NOW_MS)
    return log


def steps(work: Steps[Any]) -> tuple[Any, int, int]:
    """Return (result, number of turns given to others, number of calls requested)."""
    turns = calls = 0
    resume = partial(next, work)
    while True:
        try:
            call = resume()
        except StopIteration as end:
            return end.value, turns, calls
        if call is None:
            turns, resume = turns + 1, partial(next, work)
        else:
            calls, resume = calls + 1, after_call(work, call)


@pytest.mark.parametrize("interval", [1, 500, 4096])
def test_a_cold_log_gives_the_same_answers(interval: int) -> None:
    files = MemoryFiles()
    log = filled(files, 60, segment_bytes=3000, index_interval_bytes=interval)
    twin = filled(MemoryFiles(), 60, segment_bytes=3000, index_interval_bytes=interval)
    for late in range(-1, 302, 7):
        files.evict()
        found, _, calls = steps(log.offset_for_timestamp(NOW_MS + late))
        assert found == run_all(twin.offset_for_timestamp(NOW_MS + late))
        assert calls > 0 or late > 299
    files.evict()
    assert steps(log.offset_of_max_timestamp())[0] == run_all(twin.offset_of_max_timestamp()) == (NOW_MS + 299, 299, 14)


def test_a_cold_log_that_was_just_opened() -> None:
    files = MemoryFiles()
    filled(files, 30, segment_bytes=2000, index_interval_bytes=100).close(clean=True)
    log = open_log(files, segment_bytes=2000, index_interval_bytes=100)
    files.evict()
    assert steps(log.offset_for_timestamp(NOW_MS + 77))[0] == (NOW_MS + 77, 77, 3)


def test_memory_that_keeps_nothing_is_waited_for_in_the_end() -> None:
    files = MemoryFiles()
    log = filled(files, 3)
    work = log.offset_for_timestamp(NOW_MS + 7)
    found = None
    result = None
    for _ in range(1000):
        files.evict()
        try:
            call = work.send(result)
        except StopIteration as end:
            found = end.value
            break
        result = None if call is None else call()
    assert found == (NOW_MS + 7, 7, 0)


def test_a_large_batch_is_looked_at_in_slices() -> None:
    log = open_log(MemoryFiles(), max_message_bytes=1 << 22)
    sent = build_batch([Record(n, NOW_MS + n, b"key", b"v" * 60, []) for n in range(3000)], compression=4)
    log.append_as_leader(sent, 0, NOW_MS)
    found, turns, calls = steps(log.offset_for_timestamp(NOW_MS + 2990))
    assert found == (NOW_MS + 2990, 2990, 0)
    assert turns >= 2990 // ITEMS_PER_STEP
    assert calls == 1  # the codec


@pytest.mark.parametrize("compression", [1, 2, 3, 4])
def test_a_batch_too_large_to_be_decompressed_as_a_whole_is_searched_in_pieces(
    compression: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "DEFAULT_MAX_DECOMPRESSED_BYTES", 64 * 1024)
    log = open_log(MemoryFiles(), max_message_bytes=1 << 22)
    sent = build_batch([Record(n, NOW_MS + n, b"key", b"v" * 400, []) for n in range(3000)], compression=compression)
    log.append_as_leader(sent, 0, NOW_MS)
    found, turns, calls = steps(log.offset_for_timestamp(NOW_MS + 2990))
    assert found == (NOW_MS + 2990, 2990, 0)
    assert turns > 3000 // ITEMS_PER_STEP // 2
    assert calls > 2
    assert run_all(log.offset_for_timestamp(NOW_MS + 3000)) is None
    assert run_all(log.offset_of_max_timestamp()) == (NOW_MS + 2999, 2999, 0)


def test_many_batches_that_are_all_too_early_are_gone_through_in_slices() -> None:
    """One record of the far future: the time index has no entry behind it."""
    log = open_log(MemoryFiles(), index_interval_bytes=1)
    log.append_as_leader(build_batch([(b"k", b"v")], timestamp_ms=NOW_MS + 1000), 0, NOW_MS)
    for _ in range(1000):
        log.append_as_leader(build_batch([(b"k", b"v")], timestamp_ms=NOW_MS), 0, NOW_MS)
    log.append_as_leader(build_batch([(b"k", b"v")], timestamp_ms=NOW_MS + 900), 0, NOW_MS)
    log.offsets.restore_high_watermark(log.log_end_offset)
    log.retention.advance_log_start_offset(2)
    found, turns, _ = steps(log.offset_for_timestamp(NOW_MS + 900))
    assert found == (NOW_MS + 900, 1001, 0)
    assert turns > 10


@pytest.mark.parametrize("unlinked", [False, True])
def test_segments_deleted_during_the_search(unlinked: bool) -> None:
    files = MemoryFiles()
    complaints: list[Any] = []
    log = filled(
        files, 40, segment_bytes=2000, index_interval_bytes=100, on_error=lambda _log, error: complaints.append(error)
    )
    files.evict()
    work = log.offset_for_timestamp(NOW_MS + 3)
    call = next(work)
    assert call is not None
    log.offsets.restore_high_watermark(log.log_end_offset)
    for path in log.retention.delete_segments(2, NOW_MS):
        if unlinked:
            files.unlink(path)
    found = run_all(work)
    first = log.log_start_offset
    assert found == ((NOW_MS + first, first, first // 20) if unlinked else found)
    assert found is not None
    assert found[0] >= NOW_MS + 3
    assert complaints == []


def test_a_log_may_be_read_without_waiting() -> None:
    from gregor.storage.fs.cached_reads import NotCached

    files = MemoryFiles()
    log = filled(files, 40, segment_bytes=2000, index_interval_bytes=100)
    log.configure(log_config(segment_bytes=2000))
    for offset in range(0, 200, 13):
        files.evict()
        fetches = 0
        while True:
            try:
                piece = log.read(offset, 1 << 20, log.log_end_offset, waits_for_disk=False)
                break
            except NotCached as missing:
                missing.fetcher()()
                fetches += 1
        twin = log.read(offset, 1 << 20, log.log_end_offset)
        assert (piece.position, piece.size_bytes, piece.first_offset) == (
            twin.position, twin.size_bytes, twin.first_offset,
        )  # fmt: skip
        assert 0 < fetches < 5
        piece.release()
        twin.release()


def test_messages_of_an_old_format_are_not_found_and_newer_ones_are() -> None:
    """Apache Kafka leaves them in sealed segments, and starts do not read these."""
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    old = Segment.create(files, DIRECTORY, 0, now_ms=NOW_MS)
    old.log.write(b"".join(old_message(offset, timestamp_ms=NOW_MS + offset) for offset in range(5)))
    old.time_index.maybe_append(NOW_MS + 4, 4)
    old.write_indexes()
    Segment.create(files, DIRECTORY, 5, now_ms=NOW_MS)
    files.write_atomically(f"{DIRECTORY}/{EPOCHS_FILE}", b"0\n1\n0 5\n")
    log = open_log(files)
    log.append_as_leader(build_batch([(b"k", b"v")], timestamp_ms=NOW_MS + 10), 0, NOW_MS)
    for _ in range(2):
        with pytest.raises(KafkaError, match="orders-0 cannot be searched by timestamp") as raised:
            run_all(log.offset_for_timestamp(NOW_MS + 3))
        assert raised.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        assert run_all(log.offset_for_timestamp(NOW_MS + 5)) == (NOW_MS + 10, 5, 0)
        assert run_all(log.offset_of_max_timestamp()) == (NOW_MS + 10, 5, 0)
        files.evict()
