"""A segment's files: what is in the indexes, byte for byte, and what survives damage."""

from __future__ import annotations

import struct
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.records.batch import RecordBatch, iter_batches
from gregor.storage.segment.check import check_segment
from gregor.storage.segment.segment import LOCATE_BYTES, OldMessageFormat, Segment
from tests.storage.logs import DIRECTORY, NOW_MS, batch, old_message, open_log, patched, scanned
from tests.storage.memory_files import MemoryFiles

STEM = f"{DIRECTORY}/{0:020d}"


def write_batches(files: MemoryFiles, batches: list[bytes | bytearray], **settings: object) -> Segment:
    """The only segment of a log with these batches."""
    log = open_log(files, **settings)
    for data in batches:
        log.append_as_leader(data, 0, NOW_MS)
    return log.segments[0]


def expected_indexes(data: bytes, interval: int) -> tuple[bytes, bytes]:
    """Kafka's LogSegment.append and its onBecomeInactiveSegment, word for word, over the batches of a file."""
    index, time_index = b"", b""
    position, since_entry = 0, 0
    max_timestamp, max_timestamp_offset = -1, 0
    last_indexed = -1
    for one in iter_batches(data):
        if one.max_timestamp > max_timestamp:
            max_timestamp, max_timestamp_offset = one.max_timestamp, one.last_offset
        if since_entry > interval:
            index += struct.pack(">ii", one.last_offset, position)
            if max_timestamp > last_indexed:
                time_index += struct.pack(">qi", max_timestamp, max_timestamp_offset)
                last_indexed = max_timestamp
            since_entry = 0
        position += one.size_bytes
        since_entry += one.size_bytes
    if max_timestamp > last_indexed:
        time_index += struct.pack(">qi", max_timestamp, max_timestamp_offset)
    return index, time_index


batch_shapes = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 300), st.integers(-50, 200)), min_size=1, max_size=30
)


def batches_of(shapes: list[tuple[int, int, int]]) -> list[bytes | bytearray]:
    return [batch(count, size=size, timestamp_ms=NOW_MS + later) for count, size, later in shapes]


@settings(max_examples=25, deadline=None)
@given(batch_shapes, st.integers(0, 800))
def test_indexes_are_kafkas_byte_for_byte(shapes: list[tuple[int, int, int]], interval: int) -> None:
    files = MemoryFiles()
    segment = write_batches(files, batches_of(shapes), index_interval_bytes=interval)
    segment.become_inactive()
    index, time_index = expected_indexes(files.read_bytes(f"{STEM}.log"), interval)
    assert files.read_bytes(f"{STEM}.index") == index
    assert files.read_bytes(f"{STEM}.timeindex") == time_index


def check(segment: Segment, from_offset: int = 0, interval: int = 4096) -> int:
    """Runs a recovery's check to its end; returns where the last valid batch ends."""
    steps = check_segment(segment, from_offset, index_interval_bytes=interval)
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            return int(finished.value.end_position)


@settings(max_examples=25, deadline=None)
@given(batch_shapes, st.integers(0, 800), st.data())
def test_indexes_made_by_a_recovery_are_those_that_appending_made(
    shapes: list[tuple[int, int, int]], interval: int, data: st.DataObject
) -> None:
    files = MemoryFiles()
    segment = write_batches(files, batches_of(shapes), index_interval_bytes=interval)
    segment.become_inactive()
    before = files.read_bytes(f"{STEM}.index"), files.read_bytes(f"{STEM}.timeindex")
    from_offset = data.draw(st.integers(0, sum(count for count, *_ in shapes)))
    opened = Segment.open(files, DIRECTORY, 0)
    assert check(opened, from_offset, interval) == opened.size_bytes
    assert (files.read_bytes(f"{STEM}.index"), files.read_bytes(f"{STEM}.timeindex")) == before
    assert (opened.max_timestamp, opened.max_timestamp_offset) == (segment.max_timestamp, segment.max_timestamp_offset)
    assert opened.bytes_since_index_entry == segment.bytes_since_index_entry


def test_scan_tells_what_the_headers_say() -> None:
    files = MemoryFiles()
    segment = write_batches(files, batches_of([(3, 10, 5), (1, 2000, 0), (2, 0, 9)]))
    data = files.read_bytes(f"{STEM}.log")
    expected, position = [], 0
    for one in iter_batches(data):
        expected.append(
            (position, one.size_bytes, one.base_offset, one.last_offset, one.leader_epoch, one.attributes,
             one.max_timestamp, one.producer_id, one.producer_epoch, one.base_sequence)
        )  # fmt: skip
        position += one.size_bytes
    assert scanned(segment) == expected
    assert scanned(segment, verify_crc=False) == expected
    assert scanned(segment, expected[1][0]) == expected[1:]


@pytest.mark.parametrize("verify_crc", [True, False])
def test_scan_of_every_prefix_yields_the_whole_batches_in_it(verify_crc: bool) -> None:
    files = MemoryFiles()
    write_batches(files, batches_of([(1, 3, 0), (2, 0, 0), (1, 5, 0)]))
    data = files.read_bytes(f"{STEM}.log")
    ends = [position + size_bytes for position, size_bytes, *_ in scanned(Segment.open(files, DIRECTORY, 0))]
    for cut in range(len(data) + 1):
        files.create(f"{STEM}.log").write(data[:cut])
        segment = Segment.open(files, DIRECTORY, 0)
        assert [p + s for p, s, *_ in scanned(segment, verify_crc=verify_crc)] == [end for end in ends if end <= cut]


@pytest.mark.parametrize("tail", [b"\0" * 200, b"\xff" * 200, b"a torn write, perhaps" * 9, b"\0"])
def test_scan_ends_before_what_is_no_batch(tail: bytes) -> None:
    files = MemoryFiles()
    good = write_batches(files, batches_of([(1, 3, 0), (2, 0, 0)])).size_bytes
    files.open(f"{STEM}.log").write(tail)
    segment = Segment.open(files, DIRECTORY, 0)
    for verify_crc in (True, False):
        assert sum(size_bytes for _, size_bytes, *_ in scanned(segment, verify_crc=verify_crc)) == good
    assert check(segment) == good


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 7))
def test_scan_never_yields_a_batch_with_a_flipped_bit(where: int, bit: int) -> None:
    files = MemoryFiles()
    write_batches(files, batches_of([(1, 30, 0), (2, 0, 0), (1, 50, 0)]))
    data = bytearray(files.read_bytes(f"{STEM}.log"))
    where %= len(data)
    data[where] ^= 1 << bit
    files.create(f"{STEM}.log").write(data)
    for _, size_bytes, base_offset, *_ in scanned(Segment.open(files, DIRECTORY, 0)):
        assert base_offset >= 0
        assert size_bytes > 0
    spared = [
        position
        for position, size_bytes, *_ in scanned(Segment.open(files, DIRECTORY, 0))
        # Base offset and leader epoch are outside of the checksum.
        if position <= where < position + size_bytes and not (where - position < 8 or 12 <= where - position < 16)
    ]
    assert spared == []


def test_scan_crosses_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    segment = write_batches(files, batches_of([(1, 10 * n % 700, n) for n in range(40)]))
    whole = scanned(segment)
    for window in (61, 62, 200, 1000):
        monkeypatch.setattr("gregor.storage.segment.segment.SCAN_BYTES", window)
        monkeypatch.setattr("gregor.storage.segment.segment.HEADERS_BYTES", window)
        monkeypatch.setattr("gregor.storage.segment.segment.LOCATE_BYTES", window)
        assert scanned(segment) == whole
        assert scanned(segment, verify_crc=False) == whole
        for position, size_bytes, base_offset, last_offset, *_ in whole:
            assert segment.locate(base_offset) == (position, size_bytes, base_offset, last_offset)


def test_scan_stops_where_offsets_go_back() -> None:
    files = MemoryFiles()
    segment = write_batches(files, batches_of([(2, 3, 0)]))
    files.open(f"{STEM}.log").write(patched(batch(2), ">q", 0, 1))
    assert [b[2] for b in scanned(Segment.open(files, DIRECTORY, 0))] == [0]
    assert segment.size_bytes < Segment.open(files, DIRECTORY, 0).size_bytes


@pytest.mark.parametrize(("base_offset", "found"), [(2**31 - 2, [0, 2**31 - 2]), (2**31 - 1, [0]), (2**62, [0])])
def test_scan_stops_where_no_index_entry_could_name_an_offset(base_offset: int, found: list[int]) -> None:
    files = MemoryFiles()
    write_batches(files, batches_of([(2, 3, 0)]))
    files.open(f"{STEM}.log").write(patched(batch(2), ">q", 0, base_offset))
    assert [b[2] for b in scanned(Segment.open(files, DIRECTORY, 0), verify_crc=False)] == found


def test_scan_of_a_file_that_is_shorter_than_it_was_said_to_be() -> None:
    files = MemoryFiles()
    write_batches(files, batches_of([(1, 3, 0), (2, 500, 0)]))
    segment = Segment.open(files, DIRECTORY, 0, size_bytes=100_000)
    assert len(scanned(segment)) == 2
    files.open(f"{STEM}.log").truncate(300)
    assert len(scanned(segment)) == 1


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused_not_cut_off(magic: int) -> None:
    message = old_message(magic=magic)
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    files.create(f"{STEM}.log").write(message)
    with pytest.raises(OldMessageFormat, match=f"format {magic}"):
        scanned(Segment.open(files, DIRECTORY, 0))
    files.create(f"{STEM}.log").write(message[:-1] + b"?")  # damaged, so it proves nothing
    assert scanned(Segment.open(files, DIRECTORY, 0)) == []


@settings(max_examples=30, deadline=None)
@given(batch_shapes, st.integers(0, 800), st.data())
def test_locate_finds_what_a_linear_search_finds(
    shapes: list[tuple[int, int, int]], interval: int, data: st.DataObject
) -> None:
    files = MemoryFiles()
    segment = write_batches(files, batches_of(shapes), index_interval_bytes=interval)
    whole = scanned(segment)
    with patch("gregor.storage.segment.segment.LOCATE_BYTES", data.draw(st.sampled_from([8192, 300, 61]))):
        for offset in range(whole[-1][3] + 3):
            expected = next(((p, size, base, last) for p, size, base, last, *_ in whole if last >= offset), None)
            assert segment.locate(offset) == expected


def test_large_batch_is_found_by_its_own_header_alone() -> None:
    files = MemoryFiles()
    segment = write_batches(files, [batch(2, size=LOCATE_BYTES) for _ in range(9)], index_interval_bytes=4096)
    for number in range(2, 9):
        reads = files.calls["read"]
        located = segment.locate(2 * number)
        assert located is not None
        assert located[2] == 2 * number
        assert files.calls["read"] == reads + 1


@settings(max_examples=30, deadline=None)
@given(batch_shapes, st.integers(0, 800), st.data())
def test_truncated_segment_is_as_if_the_rest_was_never_written(
    shapes: list[tuple[int, int, int]], interval: int, data: st.DataObject
) -> None:
    files, twin_files = MemoryFiles(), MemoryFiles()
    kept = data.draw(st.integers(0, len(shapes)))
    segment = write_batches(files, batches_of(shapes), index_interval_bytes=interval)
    twin = write_batches(twin_files, batches_of(shapes)[:kept], index_interval_bytes=interval)
    next_offset = sum(count for count, _, _ in shapes[:kept])
    times = list(struct.iter_unpack(">qi", files.read_bytes(f"{STEM}.timeindex")))

    segment.truncate_to(twin.size_bytes, data.draw(st.sampled_from([None, next_offset])))
    for suffix in (".log", ".index"):
        assert files.read_bytes(STEM + suffix) == twin_files.read_bytes(STEM + suffix)
    # An entry may stay that was written with a later batch, but names an earlier one (Kafka's TimeIndex.truncateTo).
    left = list(struct.iter_unpack(">qi", files.read_bytes(f"{STEM}.timeindex")))
    assert left == [entry for entry in times if entry[1] < next_offset]
    assert segment.size_bytes == twin.size_bytes
    assert segment.bytes_since_index_entry == twin.bytes_since_index_entry
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (twin.max_timestamp, twin.max_timestamp_offset)
    assert segment.first_timestamp == twin.first_timestamp


def test_largest_timestamp_is_the_modification_time_without_any() -> None:
    files = MemoryFiles()
    files.now_ms = 12345
    without = write_batches(files, [batch(timestamp_ms=-1)])
    assert without.largest_timestamp_ms == 12345
    assert without.first_timestamp == -1


def test_deleted_segment_is_renamed_and_what_is_held_can_be_read() -> None:
    files = MemoryFiles()
    segment = write_batches(files, [batch()])
    segment.log.hold()
    paths = segment.mark_deleted()
    assert paths == [f"{STEM}{suffix}.deleted" for suffix in (".log", ".index", ".timeindex")]
    for path in paths:
        files.unlink(path)
    assert RecordBatch(segment.log.read(segment.size_bytes, 0)).crc_ok()
    segment.log.release()
