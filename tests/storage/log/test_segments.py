"""gregor.storage.log.segments: the list, its base offsets and the active segment change together."""

from __future__ import annotations

from gregor.storage.log.segments import MAX_KNOWN_POSITIONS, Segments, list_segments
from gregor.storage.segment.segment import Segment
from tests.storage.logs import DIRECTORY, NOW_MS
from tests.storage.memory_files import MemoryFiles


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
    segments.remove_first()
    assert not segments.names_changed
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


def test_only_segments_are_listed_in_a_folder() -> None:
    segments = segments_at(10, 0)
    for name in ("leader-epoch-checkpoint", "5.log", f"{3:020d}.log.deleted", f"{'x' * 20}.log"):
        segments.files.create(f"{DIRECTORY}/{name}")
    assert [segment.base_offset for segment in list_segments(segments.files, DIRECTORY)] == [0, 10]
