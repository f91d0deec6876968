"""Treatment, at start, of files that an interrupted operation has left."""

from __future__ import annotations

import pytest

from gregor.storage.segment.leftovers import tidy_folder
from tests.storage.logs import DIRECTORY, NOW_MS, batch, open_log
from tests.storage.memory_files import MemoryFiles


def folder(names: dict[str, bytes]) -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    for name, data in names.items():
        files.create(f"{DIRECTORY}/{name}").write(data)
    return files


def names_in(files: MemoryFiles) -> list[str]:
    return sorted(entry.name for entry in files.list_directory(DIRECTORY))


def stem(offset: int) -> str:
    return f"{offset:020d}"


def segment_files(count: int, base_offset: int = 0) -> dict[str, bytes]:
    """A segment's files by suffix, with `count` batches of one record."""
    files = MemoryFiles()
    log = open_log(files, log_start_offset=base_offset)
    for _ in range(count):
        log.append_as_leader(batch(1), 0, NOW_MS)
    log.close(clean=True)
    return {
        suffix: files.read_bytes(f"{DIRECTORY}/{stem(base_offset)}{suffix}")
        for suffix in (".log", ".index", ".timeindex")
    }


def as_names(base_offset: int, parts: dict[str, bytes], mark: str = "") -> dict[str, bytes]:
    return {f"{stem(base_offset)}{suffix}{mark}": data for suffix, data in parts.items()}


def test_a_tidy_folder_stays_as_it_is() -> None:
    names = as_names(0, segment_files(3)) | {
        f"{stem(3)}.snapshot": b"s",
        "leader-epoch-checkpoint": b"0\n0\n",
        "partition.metadata": b"x",
        "readme": b"not ours",
    }
    files = folder(names)
    sizes, garbage = tidy_folder(files, DIRECTORY)
    assert sizes == {name: len(data) for name, data in names.items()}
    assert garbage == []
    assert names_in(files) == sorted(names)


def test_deleted_and_temporary_files_are_handed_over() -> None:
    files = folder(
        as_names(5, segment_files(1, 5))
        | {f"{stem(0)}.log.deleted": b"", f"{stem(0)}.snapshot.deleted": b"", "leader-epoch-checkpoint.tmp": b""}
    )
    sizes, garbage = tidy_folder(files, DIRECTORY)
    assert sorted(sizes) == [f"{stem(5)}.index", f"{stem(5)}.log", f"{stem(5)}.timeindex"]
    assert sorted(garbage) == [
        f"{DIRECTORY}/{stem(0)}.log.deleted",
        f"{DIRECTORY}/{stem(0)}.snapshot.deleted",
        f"{DIRECTORY}/leader-epoch-checkpoint.tmp.deleted",
    ]
    assert all(files.exists(path) for path in garbage)


def test_indexes_without_their_segment_go() -> None:
    files = folder(
        as_names(0, segment_files(1)) | {f"{stem(9)}{suffix}": b"" for suffix in (".index", ".timeindex", ".txnindex")}
    )
    sizes, garbage = tidy_folder(files, DIRECTORY)
    assert sorted(sizes) == [f"{stem(0)}.index", f"{stem(0)}.log", f"{stem(0)}.timeindex"]
    assert len(garbage) == 3


def test_an_unfinished_compaction_is_undone() -> None:
    # .cleaned: the output was not complete, so the originals hold.
    names = as_names(0, segment_files(5))
    files = folder(names | as_names(0, segment_files(2), ".cleaned"))
    sizes, garbage = tidy_folder(files, DIRECTORY)
    assert {name: files.read_bytes(f"{DIRECTORY}/{name}") for name in sizes} == names
    assert len(garbage) == 3


def test_a_swap_at_or_above_a_cleaned_file_is_undone_too() -> None:
    # A split renames its outputs from the highest down; this one was not through.
    names = as_names(0, segment_files(5))
    files = folder(names | as_names(0, segment_files(2), ".cleaned") | as_names(2, segment_files(3, 2), ".swap"))
    sizes, garbage = tidy_folder(files, DIRECTORY)
    assert {name: files.read_bytes(f"{DIRECTORY}/{name}") for name in sizes} == names
    assert len(garbage) == 6


def compacted_names() -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Before and after: segments 0 and 3 were compacted into one, 6 is not concerned."""
    rest = as_names(6, segment_files(1, 6))
    output = segment_files(6)
    before = (
        as_names(0, segment_files(3))
        | as_names(3, segment_files(3, 3))
        | {f"{stem(3)}.snapshot": b"s"}
        | as_names(0, output, ".swap")
        | rest
    )
    return before, as_names(0, output) | rest


def test_a_finished_compaction_is_completed() -> None:
    before, after = compacted_names()
    files = folder(before)
    sizes, garbage = tidy_folder(files, DIRECTORY)
    assert {name: files.read_bytes(f"{DIRECTORY}/{name}") for name in sizes} == after
    assert sorted(path.rpartition("/")[2] for path in garbage) == sorted(
        f"{name}.deleted"
        for name in before
        if name not in as_names(6, {".log": b"", ".index": b"", ".timeindex": b""}) and not name.endswith(".swap")
    )


def test_a_finished_compaction_without_its_index_is_completed() -> None:
    before, after = compacted_names()
    del before[f"{stem(0)}.index.swap"], after[f"{stem(0)}.index"]
    files = folder(before)
    sizes, _ = tidy_folder(files, DIRECTORY)
    assert {name: files.read_bytes(f"{DIRECTORY}/{name}") for name in sizes} == after


@pytest.mark.parametrize("step", range(10))
def test_tidying_that_is_cut_short_is_taken_up_again(step: int) -> None:
    before, after = compacted_names()
    files = folder(before)
    files.fail("rename", after=step)
    with pytest.raises(OSError, match="made to fail"):
        tidy_folder(files, DIRECTORY)
    sizes, _ = tidy_folder(files, DIRECTORY)
    logs = {name: files.read_bytes(f"{DIRECTORY}/{name}") for name in sizes if name.endswith(".log")}
    assert logs == {name: data for name, data in after.items() if name.endswith(".log")}
    # An index may have been lost on the way (it is made anew), never be a wrong one.
    assert all(after[name] == files.read_bytes(f"{DIRECTORY}/{name}") for name in sizes)
