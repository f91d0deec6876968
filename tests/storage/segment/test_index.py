"""Both indexes against the obvious: a list that is searched from its start."""

from __future__ import annotations

import struct
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.storage.segment.index import LOADED_BYTES, PENDING_BYTES, OffsetIndex, TimeIndex
from tests.storage.memory_files import MemoryFiles

BASE = 1000


def offset_index(files: MemoryFiles, entries: list[tuple[int, int]]) -> OffsetIndex:
    index = OffsetIndex(files, "0.index", BASE, create=True)
    for offset, position in entries:
        index.append(offset, position)
    index.write_pending()
    return index


def time_index(files: MemoryFiles, entries: list[tuple[int, int]]) -> TimeIndex:
    index = TimeIndex(files, "0.timeindex", BASE, create=True)
    for timestamp, offset in entries:
        index.maybe_append(timestamp, offset)
    index.write_pending()
    return index


ascending_pairs = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=40).map(
    lambda steps: [
        (BASE + sum(step for step, _ in steps[: n + 1]), sum(step for _, step in steps[: n + 1]))
        for n in range(len(steps))
    ]
)


@settings(max_examples=40, deadline=None)
@given(ascending_pairs, st.integers(-10, 2500))
def test_offset_lookup_finds_what_a_linear_search_finds(entries: list[tuple[int, int]], delta: int) -> None:
    index = offset_index(MemoryFiles(), entries)
    target = BASE + delta
    expected = (BASE, 0)
    for offset, position in entries:
        if offset <= target:
            expected = (offset, position)
    assert index.lookup(target) == expected
    assert index.entries_below_position(delta * 50) == sum(position < delta * 50 for _, position in entries)
    assert index.last() == (entries[-1] if entries else (BASE, 0))


@settings(max_examples=40, deadline=None)
@given(ascending_pairs, st.integers(-10, 200_000))
def test_time_lookup_finds_what_a_linear_search_finds(pairs: list[tuple[int, int]], target: int) -> None:
    entries = [(position, offset) for offset, position in pairs]
    index = time_index(MemoryFiles(), entries)
    expected = (-1, BASE)
    for timestamp, offset in entries:
        if timestamp <= target:
            expected = (timestamp, offset)
    assert index.lookup(target) == expected
    below = BASE + target // 100
    assert index.entries_below_offset(below) == sum(offset < below for _, offset in entries)
    assert index.last_timestamp == (entries[-1][0] if entries else -1)


def test_files_hold_big_endian_relative_entries() -> None:
    files = MemoryFiles()
    offset_index(files, [(BASE + 3, 4100), (BASE + 9, 8300)])
    time_index(files, [(1_700_000_000_000, BASE + 3)])
    assert files.read_bytes("0.index") == struct.pack(">iiii", 3, 4100, 9, 8300)
    assert files.read_bytes("0.timeindex") == struct.pack(">qi", 1_700_000_000_000, 3)


def test_time_entry_is_added_only_for_a_later_timestamp() -> None:
    index = time_index(MemoryFiles(), [(50, BASE), (50, BASE + 1), (49, BASE + 2), (51, BASE + 3)])
    assert [index.entry(slot) for slot in range(index.entries)] == [(50, 0), (51, 3)]


@pytest.mark.parametrize("count", [0, 1, 2, 5, 64])
@pytest.mark.parametrize("zeros", [1, 3, 100])
def test_zeros_left_by_preallocation_are_no_entries(count: int, zeros: int) -> None:
    files = MemoryFiles()
    entries = [(BASE + 2 * number, 5000 * (number + 1)) for number in range(count)]
    offset_index(files, entries).file.write(bytes(8 * zeros))
    time_index(files, [(position, offset) for offset, position in entries]).file.write(bytes(12 * (zeros + 1)))
    opened = OffsetIndex(files, "0.index", BASE)
    assert opened.entries == count
    assert opened.last() == (entries[-1] if entries else (BASE, 0))
    times = TimeIndex(files, "0.timeindex", BASE)
    assert times.entries == count
    opened.prepare_appends()
    opened.append(BASE + 1000, 900_000)
    opened.write_pending()
    assert files.read_bytes("0.index")[8 * count :] == struct.pack(">ii", 1000, 900_000)
    assert opened.lookup(BASE + 2000) == (BASE + 1000, 900_000)


def test_only_entry_of_a_time_index_may_be_all_zero() -> None:
    files = MemoryFiles()
    time_index(files, [(0, BASE)])
    assert TimeIndex(files, "0.timeindex", BASE).last() == (0, BASE)


def test_partial_entry_at_the_end_is_cut_before_the_first_append() -> None:
    files = MemoryFiles()
    offset_index(files, [(BASE + 1, 4200)]).file.write(b"\0\0\1")
    opened = OffsetIndex(files, "0.index", BASE)
    assert opened.entries == 1
    opened.prepare_appends()
    opened.append(BASE + 5, 9000)
    opened.write_pending()
    assert files.read_bytes("0.index") == struct.pack(">iiii", 1, 4200, 5, 9000)


def test_content_is_read_at_the_first_lookup_and_kept_up_to_date() -> None:
    files = MemoryFiles()
    offset_index(files, [(BASE + number, 4096 * number) for number in range(1, 50)])
    opened = OffsetIndex(files, "0.index", BASE)
    opened.lookup(BASE + 7)
    reads = files.calls["read"]
    opened.append(BASE + 60, 4096 * 60)
    assert opened.lookup(BASE + 70) == (BASE + 60, 4096 * 60)
    assert opened.lookup(BASE + 20) == (BASE + 20, 4096 * 20)
    assert files.calls["read"] == reads


def test_content_dropped_by_the_cache_is_read_again() -> None:
    files = MemoryFiles()
    files.cache.limit_bytes = 8
    index = offset_index(files, [(BASE + number, 4096 * number) for number in range(1, 50)])
    assert index.lookup(BASE + 7) == (BASE + 7, 4096 * 7)
    files.cache.use("somebody else", 8, lambda: None)
    reads = files.calls["read"]
    index.append(BASE + 60, 4096 * 60)
    assert index.lookup(BASE + 65) == (BASE + 60, 4096 * 60)
    assert files.calls["read"] == reads + 1


def test_large_index_is_searched_without_being_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gregor.storage.segment.index.LOADED_BYTES", 800)
    monkeypatch.setattr("gregor.storage.segment.index.PAGE_ENTRIES", 7)
    files = MemoryFiles()
    for count in (100, 101, 150):
        index = offset_index(files, [(BASE + 2 * number, 4096 * number) for number in range(1, count + 1)])
        for offset in range(BASE, BASE + 2 * count + 3):
            below = min((offset - BASE) // 2, count)
            assert index.lookup(offset) == (BASE + 2 * below if below else BASE, 4096 * below)
    reads = files.calls["read"]
    index.append(BASE + 1000, 1_000_000)
    assert index.lookup(BASE + 1001) == (BASE + 1000, 1_000_000)
    assert 2 < files.calls["read"] - reads < 10


def test_lookups_that_advance_in_a_large_index_read_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gregor.storage.segment.index.LOADED_BYTES", 800)
    monkeypatch.setattr("gregor.storage.segment.index.PAGE_ENTRIES", 7)
    monkeypatch.setattr("gregor.storage.segment.index.KEPT_ENTRIES", 50)
    files = MemoryFiles()
    index = offset_index(files, [(BASE + 2 * number, 4096 * number) for number in range(1, 201)])
    for offset in (BASE + 21, BASE + 24):
        index.lookup_with_next(offset)
    reads = files.calls["read"]
    for offset in range(BASE + 25, BASE + 122):
        below = (offset - BASE) // 2
        assert index.lookup_with_next(offset) == (BASE + 2 * below, 4096 * below, 4096 * (below + 1))
    assert files.calls["read"] == reads
    index.lookup_with_next(BASE + 300)
    index.lookup_with_next(BASE + 10)
    assert files.calls["read"] - reads > 4, "far away from the last one, the file is searched"


def test_kept_entries_count_as_cached_content(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gregor.storage.segment.index.LOADED_BYTES", 8)
    files = MemoryFiles()
    index = offset_index(files, [(BASE + number, 4096 * number) for number in range(1, 50)])
    index.lookup_with_next(BASE + 7)
    index.lookup_with_next(BASE + 8)
    files.cache.limit_bytes = 8
    files.cache.use("another index", 8, lambda: None)
    reads = files.calls["read"]
    assert index.lookup_with_next(BASE + 9) == (BASE + 9, 4096 * 9, 4096 * 10)
    assert files.calls["read"] > reads


def test_truncated_index_forgets_and_goes_on() -> None:
    files = MemoryFiles()
    index = time_index(files, [(10, BASE + 1), (20, BASE + 2), (30, BASE + 3)])
    index.truncate_entries(index.entries_below_offset(BASE + 2))
    assert index.last() == (10, BASE + 1)
    index.maybe_append(15, BASE + 2)
    index.write_pending()
    assert files.read_bytes("0.timeindex") == struct.pack(">qiqi", 10, 1, 15, 2)


def test_entries_that_could_not_be_written_stay_pending() -> None:
    files = MemoryFiles()
    index = offset_index(files, [(BASE + 1, 4200)])
    index.append(BASE + 2, 8400)
    for _ in range(2):
        files.shorten(3)
        with pytest.raises(OSError, match="short write"):
            index.write_pending()
        assert files.read_bytes("0.index") == struct.pack(">ii", 1, 4200)
        assert index.last() == (BASE + 2, 8400)
    index.write_pending()
    assert files.read_bytes("0.index") == struct.pack(">iiii", 1, 4200, 2, 8400)


@pytest.mark.parametrize("loaded_bytes", [LOADED_BYTES, 8])
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_pending_entries_count_like_written_ones(loaded_bytes: int, data: st.DataObject) -> None:
    """Appends, cuts, lookups and writes in any order, beside a list; the cache drops what it likes."""
    with (
        patch("gregor.storage.segment.index.LOADED_BYTES", loaded_bytes),
        patch("gregor.storage.segment.index.PAGE_ENTRIES", 3),
        patch("gregor.storage.segment.index.KEPT_ENTRIES", 6),
    ):
        check_beside_a_list(data)


def check_beside_a_list(data: st.DataObject) -> None:
    files = MemoryFiles()
    model: list[tuple[int, int]] = []
    index = OffsetIndex(files, "0.index", BASE, create=True)
    for step in range(data.draw(st.integers(1, 40))):
        match data.draw(st.sampled_from(["append"] * 3 + ["look"] * 3 + ["write", "cut", "drop"])):
            case "append":
                model.append((BASE + 10 * step + 1, 5000 * step + 5000))
                index.append(*model[-1])
            case "write":
                index.write_pending()
            case "cut":
                keep = data.draw(st.integers(0, len(model)))
                del model[keep:]
                index.truncate_entries(keep)
            case "drop":
                index.close()
            case "look":
                target = BASE + data.draw(st.integers(0, 420))
                below = [entry for entry in model if entry[0] <= target]
                expected = below[-1] if below else (BASE, 0)
                assert index.lookup(target) == expected
                following = model[len(below)][1] if 0 < len(below) < len(model) else -1
                assert index.lookup_with_next(target) == (*expected, following)
        assert index.entries == len(model)
        assert index.last() == (model[-1] if model else (BASE, 0))
    index.write_pending()
    assert files.read_bytes("0.index") == b"".join(struct.pack(">ii", o - BASE, p) for o, p in model)


def test_new_entries_go_to_the_file_some_at_a_time() -> None:
    files = MemoryFiles()
    index = OffsetIndex(files, "0.index", BASE, create=True)
    for number in range(1, 1001):
        index.append(BASE + number, 4096 * number)
    assert 5 < files.calls["write"] < 20
    assert 0 < index.entries * 8 - index.file.size_bytes() < PENDING_BYTES


def test_entry_outside_is_an_index_error() -> None:
    index = offset_index(MemoryFiles(), [(BASE + 1, 4200)])
    assert index.entry(0) == (1, 4200)
    with pytest.raises(IndexError):
        index.entry(1)
    with pytest.raises(IndexError):
        index.entry(-1)
