"""Fetches and lookups by timestamp against a list of all records."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.batch import Record, build_batch
from gregor.protocol.turns import run_all
from gregor.storage.fs.files import OsFiles
from gregor.storage.log.log import Log
from tests.storage.logs import DIRECTORY, NOW_MS, batch, offsets, open_log, patched, read_offsets
from tests.storage.memory_files import MemoryFiles


class Model:
    """The batches of a log, as (first offset, last offset, bytes), in one list."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.batches: list[tuple[int, int, bytes]] = []

    def append(self, count: int, size: int) -> None:
        data = batch(count, size=size)
        info = self.log.append_as_leader(data, 0, NOW_MS)
        self.batches.append((info.first_offset, info.last_offset, bytes(data)))

    def truncate(self, kept: int) -> None:
        """Keep the first batches only."""
        if 0 <= kept < len(self.batches):
            self.log.truncate_to(self.batches[kept][0], NOW_MS)
            del self.batches[kept:]

    def expected(self, offset: int, max_bytes: int, upper_offset: int, min_one_batch: bool) -> bytes:
        """Bytes from the batch that holds `offset` on, within its segment and below the upper offset."""
        bases = [segment.base_offset for segment in self.log.segments]
        segment_end = next((base for base in bases if base > offset), self.log.log_end_offset)
        pieces = [
            data for _, last, data in self.batches if last >= offset and last < upper_offset and last < segment_end
        ]
        whole = b"".join(pieces)
        if len(whole) <= max_bytes or not pieces:
            return whole
        if len(pieces[0]) > max_bytes:
            return pieces[0] if min_one_batch else b""
        return whole[:max_bytes]


reads = st.tuples(
    st.just("read"),
    st.integers(0, 100),  # offset, in percent of the log
    st.integers(1, 1500),  # max bytes
    st.integers(0, 100),  # upper offset, in percent
    st.booleans(),
)
appends = st.tuples(st.just("append"), st.integers(1, 5), st.integers(0, 250))
tail_reads = st.tuples(st.just("tail"), st.integers(1, 1500))
truncations = st.tuples(st.just("truncate"), st.integers(0, 100))
actions_of_a_log = st.lists(appends | appends | appends | reads | reads | tail_reads | truncations, max_size=50)


@settings(max_examples=25, deadline=None)
@given(actions_of_a_log, st.integers(300, 1500), st.integers(0, 600))
def test_reads_agree_with_a_list_of_batches(actions: list[tuple[Any, ...]], segment_bytes: int, interval: int) -> None:
    check_reads(actions, segment_bytes, interval)


@settings(max_examples=50, deadline=None)
@given(actions_of_a_log, st.integers(300, 5000), st.integers(0, 100))
def test_reads_by_kept_entries_agree_with_a_list_of_batches(
    actions: list[tuple[Any, ...]],
    segment_bytes: int,
    interval: int,
) -> None:
    with (
        patch("gregor.storage.segment.index.LOADED_BYTES", 8),
        patch("gregor.storage.segment.index.PAGE_ENTRIES", 3),
        patch("gregor.storage.segment.index.KEPT_ENTRIES", 6),
        patch("gregor.storage.segment.segment.LOCATE_BYTES", 100),
    ):
        check_reads(actions, segment_bytes, interval)


def check_reads(actions: list[tuple[Any, ...]], segment_bytes: int, interval: int) -> None:
    log = open_log(MemoryFiles(), segment_bytes=segment_bytes, index_interval_bytes=interval)
    model = Model(log)
    consumed = 0
    for action in actions:
        if action[0] == "append":
            count, size = action[1:]
            if 61 + count * (size + 20) < segment_bytes:
                model.append(count, size)
            continue
        if action[0] == "truncate":
            model.truncate(len(model.batches) * action[1] // 100)
            consumed = min(consumed, log.log_end_offset)
            continue
        if action[0] == "read":
            _, where, max_bytes, upper, min_one_batch = action
            offset = log.log_end_offset * where // 100
            upper_offset = offset + (log.log_end_offset - offset) * upper // 100
        else:  # a consumer that continues at its position
            offset, max_bytes, upper_offset, min_one_batch = consumed, action[1], log.log_end_offset, True
        piece = log.read(offset, max_bytes, upper_offset, min_one_batch)
        data = piece.read()
        assert data == model.expected(offset, max_bytes, upper_offset, min_one_batch)
        assert piece.size_bytes == len(data)
        if data:
            assert piece.first_offset == int.from_bytes(data[:8])
            assert piece.active == (offset >= log.segments[-1].base_offset)
            assert max(offsets(data), default=-1) < log.end_offset_of(piece) <= log.log_end_offset
        if action[0] == "tail":
            consumed = max([*offsets(data), consumed - 1]) + 1
        piece.release()
    assert read_offsets(log, 0) == list(range(log.log_end_offset))


@pytest.mark.parametrize("seed", range(12))
def test_continued_reads_agree_with_a_list_of_batches_while_the_log_changes(seed: int) -> None:
    """Consumers that read on while the end of the log is removed and written again, with other sizes."""
    chance = random.Random(seed)
    with (
        patch("gregor.storage.segment.index.LOADED_BYTES", 8),
        patch("gregor.storage.segment.index.PAGE_ENTRIES", 3),
        patch("gregor.storage.segment.index.KEPT_ENTRIES", 6),
        patch("gregor.storage.segment.segment.LOCATE_BYTES", 100),
    ):
        log = open_log(MemoryFiles(), segment_bytes=chance.choice([1000, 20_000]), index_interval_bytes=1)
        model = Model(log)
        positions = [0, 0]
        for _ in range(300):
            match chance.choice(["append"] * 4 + ["read"] * 6 + ["truncate", "roll"]):
                case "append":
                    model.append(chance.choice([1, 1, 1, 2]), chance.randint(0, 120))
                case "truncate":
                    model.truncate(len(model.batches) - chance.randint(0, 6))
                    positions = [min(position, log.log_end_offset) for position in positions]
                case "roll" if chance.random() < 0.1:
                    log.roll(NOW_MS)
                case "read":
                    consumer, max_bytes = chance.randrange(2), chance.choice([1, 150, 700])
                    piece = log.read(positions[consumer], max_bytes, log.log_end_offset)
                    data = piece.read()
                    assert data == model.expected(positions[consumer], max_bytes, log.log_end_offset, True)
                    positions[consumer] = max(offsets(data), default=positions[consumer] - 1) + 1
                    if chance.random() < 0.2:
                        positions[consumer] = chance.randint(0, log.log_end_offset)


def filled_log(files: MemoryFiles | OsFiles, directory: str = DIRECTORY, count: int = 20) -> Log:
    log = open_log(files, directory, segment_bytes=5 * len(batch()))
    for _ in range(count):
        log.append_as_leader(batch(), 0, NOW_MS)
    return log


def test_offsets_outside_of_the_log_are_out_of_range() -> None:
    log = filled_log(MemoryFiles())
    log.offsets.restore_high_watermark(20)
    log.retention.advance_log_start_offset(3)
    for offset in (-1, 2, 21):
        with pytest.raises(KafkaError) as raised:
            log.read(offset, 100, 20)
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(20, 100, 20).size_bytes == 0
    assert log.read(3, 100, 20).first_offset == 3


def test_nothing_at_or_above_the_upper_offset_is_served() -> None:
    log = open_log(MemoryFiles())
    for _ in range(4):
        log.append_as_leader(batch(3), 0, NOW_MS)
    # 7 lies within the third batch: that one is left out as a whole.
    assert read_offsets(log, 0, upper_offset=7) == [0, 1, 2, 3, 4, 5]
    assert log.read(6, 1000, 7).size_bytes == 0
    assert log.read(7, 1000, 7).size_bytes == 0
    assert log.read(9, 1000, 5).size_bytes == 0
    assert offsets(log.read(5, 10_000, 100).read()) == list(range(3, 12))


def test_end_offset_of_a_slice_is_the_next_one_in_the_index() -> None:
    size = len(batch(2))
    log = open_log(MemoryFiles(), segment_bytes=10 * size, index_interval_bytes=2 * size)
    for _ in range(15):
        log.append_as_leader(batch(2), 0, NOW_MS)
    indexed = [log.segments[0].offset_index.entry(slot)[0] for slot in range(3)]
    assert indexed[0] > 3
    for first, max_bytes, expected in (
        (0, size, indexed[0]),
        (indexed[0], 1, indexed[1]),
        (0, 10 * size, log.segments[1].base_offset),  # the whole segment
        (18, size, log.segments[1].base_offset),
        (28, size, log.log_end_offset),
    ):
        piece = log.read(first, max_bytes, log.log_end_offset)
        assert log.end_offset_of(piece) == expected, first
        piece.release()


def test_fetch_at_the_tail_reads_no_file() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_leader(batch(2), 0, NOW_MS)
    consumed = log.log_end_offset
    log.read(consumed, 1000, consumed)  # waits for more
    for _ in range(10):
        log.append_as_leader(batch(3), 0, NOW_MS)
        log.append_as_leader(batch(1), 0, NOW_MS)
        reads = files.calls["read"]
        piece = log.read(consumed, 1 << 20, log.log_end_offset)
        assert files.calls["read"] == reads
        assert (piece.first_offset, offsets(piece.read())) == (consumed, list(range(consumed, consumed + 4)))
        consumed += 4


def test_read_behind_one_of_a_single_batch_needs_its_header_only() -> None:
    files = MemoryFiles()
    log = open_log(files)
    for _ in range(20):
        log.append_as_leader(batch(2), 0, NOW_MS)
    limit = len(batch(2)) + 1
    log.read(4, limit, log.log_end_offset).release()
    for offset in range(6, 38, 2):
        reads = files.calls["read"]
        piece = log.read(offset, limit, log.log_end_offset)
        assert files.calls["read"] == reads + 1
        assert offsets(piece.read()[: limit - 1]) == [offset, offset + 1]
        assert piece.first_offset == offset
        piece.release()


def test_remembered_position_beyond_the_end_of_a_file_is_a_storage_error() -> None:
    log = filled_log(MemoryFiles())
    active = log.segments[-1]
    size_bytes = log.read(active.base_offset, 1, log.log_end_offset).size_bytes
    active.log.truncate(size_bytes)
    with pytest.raises(KafkaError, match="ends before position") as raised:
        log.read(active.base_offset + 1, 1, log.log_end_offset)
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_gap_at_the_end_of_a_segment_leads_to_the_next() -> None:
    log = open_log(MemoryFiles())
    log.append_as_follower(batch(base_offset=5), NOW_MS)
    log.roll(NOW_MS)
    log.append_as_follower(batch(base_offset=90), NOW_MS)
    assert log.read(50, 1000, 91).first_offset == 90
    assert read_offsets(log, 6) == [90]


def test_slice_survives_deletion_rolling_and_eviction(tmp_path: Path) -> None:
    files = OsFiles(limit=2)
    log = filled_log(files, str(tmp_path / "orders-0"))
    log.offsets.restore_high_watermark(20)
    piece = log.read(1, 1 << 20, 20)
    expected = piece.read()
    paths = log.retention.delete_segments(3, NOW_MS)
    for path in paths:
        files.unlink(path)
    log.close(clean=True)
    assert piece.read() == expected
    assert os.pread(piece.fileno(), piece.size_bytes, piece.position) == expected
    buffer = bytearray(piece.size_bytes)
    assert piece.read_into(buffer) == len(expected)
    assert buffer == expected
    piece.release()
    piece.release()
    with pytest.raises(ValueError, match="nothing is held"):
        piece.fileno()


def test_dropped_slice_gives_its_descriptor_back(tmp_path: Path) -> None:
    files = OsFiles(limit=2)
    log = filled_log(files, str(tmp_path / "orders-0"))
    pieces = [log.read(offset, 100, 20) for offset in (0, 5, 10, 15)]
    assert files.open_count >= 4
    pieces.clear()
    files.create(str(tmp_path / "other"))
    assert files.open_count <= 2


def test_failing_disk_is_a_storage_error() -> None:
    files = MemoryFiles()
    log = filled_log(files)
    files.fail("read")
    with pytest.raises(KafkaError) as raised:
        log.read(0, 100, 20)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_garbage_where_a_batch_should_be_is_a_storage_error() -> None:
    files = MemoryFiles()
    log = filled_log(files)
    files.open(f"{DIRECTORY}/{0:020d}.log").truncate(0)
    files.open(f"{DIRECTORY}/{0:020d}.log").write(b"?" * 1000)
    with pytest.raises(KafkaError) as raised:
        log.read(3, 100, 20)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR


# By timestamp

records_by_batch = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), max_size=15)


@settings(max_examples=25, deadline=None)
@given(records_by_batch, st.integers(-1, 62), st.integers(0, 400), st.integers(0, 20), st.booleans())
def test_timestamp_search_agrees_with_a_linear_one(
    timestamps: list[list[int]], target: int, interval: int, start_offset: int, reopened: bool
) -> None:
    files = MemoryFiles()
    limits = {"index_interval_bytes": interval, "segment_bytes": 500}
    log = open_log(files, **limits)
    for epoch, times in enumerate(timestamps):
        records = [Record(number, NOW_MS + time, b"k", b"v" * 20, []) for number, time in enumerate(times)]
        log.append_as_leader(build_batch(records, compression=epoch % 2), epoch, NOW_MS)
    if reopened:
        log.close(clean=True)
        log = open_log(files, **limits)
    flat = [(NOW_MS + time, epoch) for epoch, times in enumerate(timestamps) for time in times]
    everything = [(timestamp, offset, epoch) for offset, (timestamp, epoch) in enumerate(flat)]
    assert run_all(log.offset_of_max_timestamp()) == max(everything, key=lambda found: found[0], default=None)

    log.offsets.restore_high_watermark(log.log_end_offset)
    log.retention.advance_log_start_offset(min(start_offset, log.log_end_offset))
    visible = (found for found in everything if found[0] >= NOW_MS + target and found[1] >= log.log_start_offset)
    assert run_all(log.offset_for_timestamp(NOW_MS + target)) == next(visible, None)


def test_records_of_a_topic_with_append_time_have_the_time_of_their_batch() -> None:
    log = open_log(MemoryFiles(), message_timestamp_type="LogAppendTime")
    for later in (0, 5, 9):
        log.append_as_leader(batch(2, timestamp_ms=1), 3, NOW_MS + later)
    assert run_all(log.offset_for_timestamp(NOW_MS + 1)) == (NOW_MS + 5, 2, 3)
    assert run_all(log.offset_of_max_timestamp()) == (NOW_MS + 9, 4, 3)


def test_records_without_a_timestamp_are_not_found() -> None:
    log = open_log(MemoryFiles())
    assert run_all(log.offset_of_max_timestamp()) is None
    assert run_all(log.offset_for_timestamp(0)) is None
    log.append_as_leader(batch(timestamp_ms=-1), 0, NOW_MS)
    assert run_all(log.offset_of_max_timestamp()) is None
    assert run_all(log.offset_for_timestamp(0)) is None


def test_records_that_cannot_be_read_are_a_corrupt_message() -> None:
    log = open_log(MemoryFiles())
    damaged = batch()
    damaged[61] = 0x7F
    log.append_as_leader(patched(damaged, ">b", 16, 2), 0, NOW_MS)
    with pytest.raises(KafkaError) as raised:
        run_all(log.offset_for_timestamp(NOW_MS))
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("tail", [True, False], ids=["tail", "empty-active-segment"])
def test_offsets_before_a_time_are_where_segments_begin(tail: bool) -> None:
    files = MemoryFiles()
    log = open_log(files)
    for time_ms in (1000, 2000, 3000):
        files.now_ms = time_ms
        log.append_as_leader(batch(2), 0, NOW_MS)
        log.append_as_leader(batch(1), 0, NOW_MS)
        log.roll(NOW_MS)
    if tail:
        files.now_ms = 4000
        log.append_as_leader(batch(4), 0, NOW_MS)
    for segment, its_ms in zip(log.segments, (1000, 2000, 3000, 4000 if tail else 3000), strict=True):
        file: Any = segment.log
        file.set_modified_ms(its_ms)
    starts = [(0, 1000), (3, 2000), (6, 3000), (9, 4000 if tail else 3000)]
    ends = [(13, 5000)] if tail else []
    for time_ms in (-1, *range(500, 6000, 500)):
        known = [offset for offset, its_ms in starts + ends if time_ms == -1 or its_ms <= time_ms]
        for count in range(6):
            assert log.offsets_before(time_ms, count, 5000) == known[::-1][:count]
    assert log.offsets_before(-2, 5, 5000) == [0]
    assert log.offsets_before(-1, -1, 5000) == []
    # Offsets deleted by DeleteRecords are not returned any more, though their segments still exist.
    log.offsets.restore_high_watermark(log.log_end_offset)
    log.retention.advance_log_start_offset(4)
    assert log.offsets_before(-2, 1, 5000) == [4]
    assert log.offsets_before(-1, 9, 5000)[-3:] == [6, 4, 4]
