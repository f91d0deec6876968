"""Checking a segment: against a slow twin, at every cut and every flipped byte, through windows of any size."""

from __future__ import annotations

import json
import struct
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.storage.producers.state import ProducerStates
from gregor.storage.segment import scan as segment_scan
from gregor.storage.segment.batches import HEADER_BYTES, BatchHeader
from gregor.storage.segment.check import CheckedSegment, check_segment
from gregor.storage.segment.producer_trail import ProducerTrail
from gregor.storage.segment.scan import Scan
from gregor.storage.segment.segment import OldMessageFormat, Segment
from tests.storage.logs import DIRECTORY, NOW_MS, batch, header_fields, old_message, open_log, patched, sequenced
from tests.storage.memory_files import MemoryFiles
from tests.storage.twins import indexes_of, valid_batches

STEM = f"{DIRECTORY}/{0:020d}"


def drained(steps: Generator[Scan, None, CheckedSegment]) -> CheckedSegment:
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            result: CheckedSegment = finished.value
            return result


def check(files: MemoryFiles, from_offset: int = 0, **options: Any) -> CheckedSegment:
    return drained(check_segment(Segment.open(files, DIRECTORY, 0), from_offset, **options))


def log_bytes(batches: Sequence[bytes | bytearray]) -> bytes:
    """The .log file of a log that was given these batches."""
    files = MemoryFiles()
    log = open_log(files)
    for data in batches:
        log.append_as_leader(data, 0, NOW_MS)
    return files.read_bytes(f"{STEM}.log")


def folder_with(data: bytes) -> MemoryFiles:
    """Only a .log file, as if its indexes were lost."""
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    files.create(f"{STEM}.log").write(data)
    return files


def indexes(files: MemoryFiles) -> tuple[bytes, bytes]:
    return files.read_bytes(f"{STEM}.index"), files.read_bytes(f"{STEM}.timeindex")


SMALL = log_bytes([batch(1, size=5), sequenced(7, 0, 0, 3, size=0), batch(2, size=9, timestamp_ms=NOW_MS + 9), batch()])


def test_a_whole_segment() -> None:
    files = folder_with(SMALL)
    epochs: list[tuple[int, int]] = []
    checked = check(files, epochs=epochs, index_interval_bytes=0)
    assert checked == CheckedSegment(len(SMALL), 7, len(SMALL))
    assert epochs == [(0, 0)]
    assert indexes(files) == indexes_of(SMALL, 0)


def test_an_empty_segment() -> None:
    files = folder_with(b"")
    assert check(files) == CheckedSegment(0, 0, 0)
    assert indexes(files) == (b"", b"")


@pytest.mark.parametrize("window_bytes", [HEADER_BYTES, HEADER_BYTES + 1, 100, 150, 200, 1 << 17])
def test_cut_at_every_byte(window_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_scan, "WINDOW_BYTES", window_bytes)
    for cut in range(len(SMALL) + 1):
        files = folder_with(SMALL[:cut])
        expected = valid_batches(SMALL[:cut])
        checked = check(files, index_interval_bytes=100)
        assert (checked.end_position, checked.next_offset) == (expected[-1][1:3] if expected else (0, 0))
        assert indexes(files) == indexes_of(SMALL[: checked.end_position], 100)


@pytest.mark.parametrize("window_bytes", [HEADER_BYTES, 1 << 17])
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_byte_flipped(window_bytes: int, mask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_scan, "WINDOW_BYTES", window_bytes)
    for where in range(len(SMALL)):
        damaged = bytearray(SMALL)
        damaged[where] ^= mask
        files = folder_with(bytes(damaged))
        expected = valid_batches(bytes(damaged))
        checked = check(files, index_interval_bytes=100)
        assert (checked.end_position, checked.next_offset) == (expected[-1][1:3] if expected else (0, 0))
        assert indexes(files) == indexes_of(bytes(damaged[: checked.end_position]), 100)


@pytest.mark.parametrize("tail", [b"\0" * 200, b"\xff" * 200, b"a torn write, perhaps" * 9, SMALL])
def test_what_is_no_batch_or_goes_back_in_offsets_ends_it(tail: bytes) -> None:
    checked = check(folder_with(SMALL + tail))
    assert (checked.end_position, checked.next_offset) == (len(SMALL), 7)


def test_a_length_that_lies_asks_for_no_memory() -> None:
    lying = bytearray(SMALL)
    struct.pack_into(">i", lying, 8, 2**31 - 1)
    assert check(folder_with(bytes(lying))).end_position == 0


def test_an_offset_that_no_index_can_hold() -> None:
    far = bytearray(SMALL)
    struct.pack_into(">q", far, 0, 2**31)
    assert check(folder_with(bytes(far))).end_position == 0


def test_messages_of_an_old_format_are_not_taken_for_damage() -> None:
    with pytest.raises(OldMessageFormat, match="format 1"):
        check(folder_with(SMALL + old_message(7)))


shapes = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 300), st.integers(-50, 200)), min_size=1, max_size=20)


def data_of(drawn: list[tuple[int, int, int]]) -> bytes:
    return log_bytes([batch(count, size=size, timestamp_ms=NOW_MS + later) for count, size, later in drawn])


@settings(max_examples=30, deadline=None)
@given(shapes, st.integers(0, 800), st.data())
def test_what_is_trusted_is_not_looked_at_and_its_index_entries_stay(
    drawn: list[tuple[int, int, int]], interval: int, data: st.DataObject
) -> None:
    written = data_of(drawn)
    files = folder_with(written)
    whole = check(files, index_interval_bytes=interval)
    expected = indexes(files)
    assert expected == indexes_of(written, interval)
    from_offset = data.draw(st.integers(0, whole.next_offset + 3))
    segment = Segment.open(files, DIRECTORY, 0)
    again = drained(check_segment(segment, from_offset, index_interval_bytes=interval))
    assert (again.end_position, again.next_offset) == (whole.end_position, whole.next_offset)
    assert indexes(files) == expected
    # Begins with the last batch below the offset that has an index entry.
    entries = [entry for entry in struct.iter_unpack(">ii", expected[0]) if entry[0] < from_offset]
    assert again.checked_bytes == len(written) - (entries[-1][1] if entries else 0)
    newest = max(((one.max_timestamp, -one.last_offset) for *_, one in valid_batches(written)), default=(-1, 0))
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (newest[0], -newest[1])
    last_entry = entries_end(expected[0])
    assert segment.bytes_since_index_entry == len(written) - last_entry


def entries_end(index: bytes) -> int:
    return max((int(position) for _, position in struct.iter_unpack(">ii", index)), default=0)


def test_appends_go_on_where_the_check_left_off() -> None:
    files = folder_with(data_of([(1, 200, n) for n in range(10)]))
    check(files, index_interval_bytes=500)
    log = open_log(files, index_interval_bytes=500)
    for number in range(10, 20):
        log.append_as_leader(batch(1, size=200, timestamp_ms=NOW_MS + number), 0, NOW_MS)
    log.close(clean=True)
    appended = indexes(files)
    # One more time index entry than in one go: the one that the check ended with.
    whole = files.read_bytes(f"{STEM}.log")
    assert appended[0] == indexes_of(whole, 500)[0]
    assert set(struct.iter_unpack(">qi", appended[1])) >= set(struct.iter_unpack(">qi", indexes_of(whole, 500)[1]))


@pytest.mark.parametrize("damage", ["astray", "shifted", "beyond the end", "garbage", "missing"])
def test_an_index_that_cannot_be_right_is_made_anew(damage: str) -> None:
    written = data_of([(1, 200, n) for n in range(20)])
    files = folder_with(written)
    next_offset = check(files, index_interval_bytes=500).next_offset
    right = indexes(files)
    if damage == "missing":
        files.unlink(f"{STEM}.index")
        files.unlink(f"{STEM}.timeindex")
    else:
        offsets, positions = zip(*struct.iter_unpack(">ii", right[0]), strict=True)
        wrong = {
            "shifted": b"".join(struct.pack(">ii", *one) for one in zip(offsets[1:], positions, strict=False)),
            "astray": b"".join(struct.pack(">ii", o, p + 7) for o, p in struct.iter_unpack(">ii", right[0])),
            "beyond the end": b"".join(struct.pack(">ii", o, p << 8) for o, p in struct.iter_unpack(">ii", right[0])),
            "garbage": b"\x05" * 37,
        }[damage]
        files.create(f"{STEM}.index").write(wrong)
    assert check(files, next_offset, index_interval_bytes=500).end_position == len(written)
    assert indexes(files) == right


def test_damage_in_the_batch_of_an_index_entry_ends_the_segment_there() -> None:
    written = bytearray(data_of([(1, 200, n) for n in range(20)]))
    files = folder_with(bytes(written))
    check(files, index_interval_bytes=500)
    last_offset, position = list(struct.iter_unpack(">ii", indexes(files)[0]))[-1]
    written[position + 100] ^= 1
    files.create(f"{STEM}.log").write(written)
    checked = check(files, last_offset + 1, index_interval_bytes=500)
    assert (checked.end_position, checked.next_offset) == (position, last_offset)
    assert indexes(files) == indexes_of(bytes(written[:position]), 500)


def test_epochs_are_noted_where_they_begin_and_never_go_back() -> None:
    files = MemoryFiles()
    log = open_log(files)
    for epoch in (3, 3, 5, 5):
        log.append_as_leader(batch(2), epoch, NOW_MS)
    data = files.read_bytes(f"{STEM}.log")
    epochs: list[tuple[int, int]] = []
    check(files, epochs=epochs)
    assert epochs == [(3, 0), (5, 4)]
    epochs = [(4, 0)]
    check(files, epochs=epochs)
    assert epochs == [(4, 0), (5, 4)]
    lowered = bytearray(data)
    struct.pack_into(">i", lowered, len(data) // 4 * 3 + 12, 1)
    epochs = []
    check(folder_with(bytes(lowered)), epochs=epochs)
    assert epochs == [(3, 0), (5, 4)]


def test_steps_are_short_and_tell_how_far_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_scan, "WINDOW_BYTES", 300)
    written = data_of([(1, 50, n) for n in range(30)])
    positions = [scan.position for scan in check_segment(Segment.open(folder_with(written), DIRECTORY, 0))]
    assert positions == sorted(positions)
    assert positions[-1] == len(written)
    assert all(after - before <= 300 for before, after in zip([0, *positions], positions, strict=False))


def test_a_batch_larger_than_a_window_is_checked_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_scan, "WINDOW_BYTES", 100)
    written = log_bytes([batch(1, size=5000)])
    steps = list(check_segment(Segment.open(folder_with(written), DIRECTORY, 0)))
    assert len(steps) > 50


# Producers

events = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1), st.just("plain")), max_size=60)


def batches_of(drawn: list[tuple[int, int, str]]) -> Iterator[bytes]:
    """Batches as they lie in a log: per producer, epochs rise and sequences continue."""
    epochs: dict[int, int] = {}
    sequences: dict[int, int] = {}
    for offset, (producer_id, bump, kind) in enumerate(drawn):
        if bump and offset % 5 == 0:
            epochs[producer_id] = epochs.get(producer_id, 0) + 1
            sequences[producer_id] = 0
        sequence = sequences.get(producer_id, 0)
        if kind != "commit":
            sequences[producer_id] = sequence + 1
        data = batch(
            1,
            base_offset=offset,
            leader_epoch=0,
            timestamp_ms=NOW_MS + offset,
            producer_id=producer_id,
            producer_epoch=epochs.get(producer_id, 0),
            base_sequence=-1 if kind == "commit" else sequence,
            transactional=kind != "plain",
            control=kind == "commit",
        )
        yield bytes(data)


def state_after(states: ProducerStates, batches: list[BatchHeader]) -> dict[int, tuple[object, ...]]:
    for one in batches:
        states.replay(one)
    return {
        producer_id: (
            entry.epoch,
            list(entry.batches),
            entry.next_sequence,
            entry.last_timestamp,
            entry.transaction_first_offset,
            entry.coordinator_epoch,
        )
        for producer_id, entry in states.entries.items()
    }


@settings(max_examples=60, deadline=None)
@given(events, st.integers(0, 60))
def test_the_trail_makes_the_same_state_as_all_batches(drawn: list[tuple[int, int, str]], from_offset: int) -> None:
    files = folder_with(b"".join(batches_of(drawn)))
    every = list(Segment.open(files, DIRECTORY, 0).scan())
    trail = ProducerTrail()
    checked = check(files, producers=trail)
    assert checked.next_offset == len(drawn)
    assert trail.from_offset == 0
    before = [one for one in every if one.base_offset < from_offset]
    after = [one for one in every if one.base_offset >= from_offset]
    fast, slow = ProducerStates(files, DIRECTORY), ProducerStates(files, DIRECTORY)
    state_after(fast, before)
    state_after(slow, before)
    kept = trail.batches(from_offset)
    assert state_after(fast, kept) == state_after(slow, after)
    assert {header_fields(one)[1:] for one in kept} <= {header_fields(one)[1:] for one in after}


def test_the_trail_keeps_little() -> None:
    drawn = [(1, 0, "plain")] * 100
    trail = ProducerTrail()
    check(folder_with(b"".join(batches_of(drawn))), producers=trail)
    assert [one.base_offset for one in trail.batches(0)] == [*range(90, 100)]
    assert not trail.has_transactions


@pytest.mark.parametrize("kind", ["transactional", "commit"])
@pytest.mark.parametrize("position", [0, 7, 19])
def test_the_trail_tells_that_there_are_transactions(kind: str, position: int) -> None:
    drawn = [(1, 0, kind if number == position else "plain") for number in range(20)]
    trail = ProducerTrail()
    check(folder_with(b"".join(batches_of(drawn))), producers=trail)
    assert trail.has_transactions
    other = ProducerTrail()
    other.extend(json.loads(json.dumps(trail.to_fields())))
    assert other.has_transactions


def test_twin_refuses_what_its_checksum_refuses() -> None:
    # The twin itself: a changed body is refused, and accepted again once the checksum is corrected.
    damaged = bytearray(SMALL)
    damaged[70] ^= 1
    assert valid_batches(bytes(damaged)) == []
    first = SMALL[: valid_batches(SMALL)[0][1]]
    mended = patched(first, ">q", 27, NOW_MS)
    assert crc32c(memoryview(mended)[21:]) == int.from_bytes(mended[17:21])
    assert len(valid_batches(bytes(mended))) == 1
