"""gregor.storage.log.contents: what a log is made from when it is opened."""

from __future__ import annotations

from gregor.storage.log.contents import LoadedParts, list_segments, load_contents
from gregor.storage.producers.state import DEFAULT_EXPIRATION_MS, ProducerStates
from gregor.storage.segment.segment import Segment
from tests.storage.logs import DIRECTORY, NOW_MS, batch, open_log
from tests.storage.memory_files import MemoryFiles


def contents_of(files: MemoryFiles, loaded: LoadedParts, log_start_offset: int = 0) -> tuple[int, int, int, bool]:
    """Offsets of the loaded contents, and whether the first segment was created."""
    contents = load_contents(
        files,
        DIRECTORY,
        now_ms=NOW_MS,
        log_start_offset=log_start_offset,
        recovery_point=0,
        producer_expiration_ms=DEFAULT_EXPIRATION_MS,
        loaded=loaded,
    )
    offsets = contents.offsets
    return offsets.log_start_offset, offsets.log_end_offset, len(contents.segments), contents.is_new


def test_an_empty_folder_gets_a_segment_at_the_log_start_offset() -> None:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    assert contents_of(files, LoadedParts(), log_start_offset=7) == (7, 7, 1, True)
    assert [segment.base_offset for segment in list_segments(files, DIRECTORY)] == [7]


def test_what_is_loaded_already_is_not_read_again() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_leader(batch(3), 2, NOW_MS)
    log.close(clean=True)
    assert contents_of(files, LoadedParts()) == (0, 3, 1, False)
    producers = ProducerStates(files, DIRECTORY)
    assert contents_of(files, LoadedParts(list_segments(files, DIRECTORY), producers, log.epochs)) == (0, 3, 1, False)
    assert producers.snapshot_offsets == []


def test_only_segments_are_listed_in_a_folder() -> None:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    for base in (10, 0):
        Segment.create(files, DIRECTORY, base, now_ms=NOW_MS)
    for name in ("leader-epoch-checkpoint", "5.log", f"{3:020d}.log.deleted", f"{'x' * 20}.log"):
        files.create(f"{DIRECTORY}/{name}")
    assert [segment.base_offset for segment in list_segments(files, DIRECTORY)] == [0, 10]
