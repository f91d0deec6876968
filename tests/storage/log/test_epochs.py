"""Leader epochs against Kafka's rules (LeaderEpochFileCache), and their file."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.storage.log.epochs import UNKNOWN, LeaderEpochs, format_epochs, parse_epochs
from tests.storage.memory_files import MemoryFiles

PATH = "/d/leader-epoch-checkpoint"


def epochs_of(entries: list[tuple[int, int]], files: MemoryFiles | None = None) -> LeaderEpochs:
    files = files or MemoryFiles()
    files.make_directory("/d")
    epochs = LeaderEpochs(files, "/d")
    for epoch, start_offset in entries:
        epochs.assign(epoch, start_offset)
    return epochs


def test_file_is_kafkas() -> None:
    files = MemoryFiles()
    epochs = epochs_of([(0, 0), (3, 4711)], files)
    assert files.read_bytes(PATH) == b"0\n2\n0 0\n3 4711\n"
    assert LeaderEpochs.load(files, "/d").entries() == epochs.entries() == [(0, 0), (3, 4711)]


@pytest.mark.parametrize(
    ("assigned", "kept"),
    [
        ([(1, 0), (1, 5)], [(1, 0)]),  # an epoch begins once
        ([(1, 5), (1, 3)], [(1, 3)]),  # or earlier than was thought
        ([(1, 0), (2, 0)], [(2, 0)]),  # an epoch without a record
        ([(1, 0), (2, 5), (3, 5)], [(1, 0), (3, 5)]),
        ([(1, 0), (2, 5), (3, 9), (2, 7)], [(1, 0), (2, 7)]),  # what contradicts the newest goes
        ([(1, 0), (3, 9), (2, 4)], [(1, 0), (2, 4)]),
    ],
)
def test_assign_keeps_epochs_and_offsets_ascending(
    assigned: list[tuple[int, int]], kept: list[tuple[int, int]]
) -> None:
    assert epochs_of(assigned).entries() == kept
    together = epochs_of([])
    together.assign_many(assigned)
    assert together.entries() == kept
    assert together.latest == kept[-1][0]


def test_same_epoch_again_writes_nothing() -> None:
    files = MemoryFiles()
    epochs = epochs_of([(1, 0)], files)
    epochs.assign(1, 7)
    epochs.assign_many([(1, 9)])
    assert files.calls["write_atomically"] == 1


def test_negative_epochs_and_offsets_are_refused() -> None:
    with pytest.raises(ValueError, match="leader epoch -1"):
        epochs_of([(-1, 0)])
    with pytest.raises(ValueError, match="offset -1"):
        epochs_of([(0, -1)])


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, UNKNOWN),
        (0, (0, 10)),  # below the first one: its records are gone
        (2, (2, 20)),
        (3, (2, 20)),  # never existed: the one before it
        (4, (4, 30)),
        (6, (6, 99)),  # the latest ends at the log's end
        (7, UNKNOWN),
    ],
)
def test_end_offset_for(asked: int, answer: tuple[int, int]) -> None:
    assert epochs_of([(2, 10), (4, 20), (6, 30)]).end_offset_for(asked, 99) == answer


def test_end_offset_without_epochs_is_unknown() -> None:
    assert epochs_of([]).end_offset_for(0, 99) == UNKNOWN


def test_epoch_for_offset() -> None:
    epochs = epochs_of([(2, 10), (4, 20)])
    assert [epochs.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 500)] == [None, 2, 2, 4, 4]


@pytest.mark.parametrize(
    ("end_offset", "kept"),
    [(31, 3), (30, 2), (11, 1), (10, 0), (0, 0)],
)
def test_truncate_from_end(end_offset: int, kept: int) -> None:
    entries = [(2, 10), (4, 20), (6, 30)]
    epochs = epochs_of(entries)
    epochs.truncate_from_end(end_offset)
    assert epochs.entries() == entries[:kept]
    assert epochs.latest == (entries[kept - 1][0] if kept else -1)


@pytest.mark.parametrize(
    ("start_offset", "left"),
    [
        (9, [(2, 10), (4, 20), (6, 30)]),
        (10, [(2, 10), (4, 20), (6, 30)]),
        (15, [(2, 10), (4, 20), (6, 30)]),
        (20, [(4, 20), (6, 30)]),
        (25, [(4, 20), (6, 30)]),
        (500, [(6, 30)]),
    ],
)
def test_truncate_from_start(start_offset: int, left: list[tuple[int, int]]) -> None:
    epochs = epochs_of([(2, 10), (4, 20), (6, 30)])
    epochs.truncate_from_start(start_offset)
    assert epochs.entries() == left


def test_clear() -> None:
    files = MemoryFiles()
    epochs = epochs_of([(2, 10)], files)
    epochs.clear()
    assert (epochs.latest, files.read_bytes(PATH)) == (-1, b"0\n0\n")


@pytest.mark.parametrize(
    "damaged",
    [
        b"1\n0\n",
        b"0\n",
        b"0\n2\n0 0\n",
        b"0\n1\n0\n",
        b"0\n1\n0 0 0\n",
        b"0\n1\n-1 0\n",
        b"0\nx\n",
        b"\0" * 40,
        b"0\n1\n0 99999999999999999999\n",
        b"",
    ],
)
def test_damaged_file_says_nothing_and_is_told_from_one_without_entries(damaged: bytes) -> None:
    files = MemoryFiles()
    files.make_directory("/d")
    assert not LeaderEpochs.load(files, "/d").intact
    files.create(PATH).write(b"0\n0\n")
    assert LeaderEpochs.load(files, "/d").intact
    files.create(PATH).write(damaged)
    epochs = LeaderEpochs.load(files, "/d")
    assert (epochs.entries(), epochs.intact) == ([], False)
    epochs.assign(5, 100)
    assert LeaderEpochs.load(files, "/d").entries() == [(5, 100)]


@given(st.binary(max_size=40) | st.text("0123456789 \n-", max_size=40).map(str.encode))
def test_parser_raises_nothing_but_value_error(data: bytes) -> None:
    try:
        entries = parse_epochs(data)
    except ValueError:
        return
    assert parse_epochs(format_epochs(entries)) == entries


def test_changes_are_dirty_and_a_failed_one_is_none() -> None:
    files = MemoryFiles()
    epochs = epochs_of([], files)
    assert not epochs.dirty
    files.fail("write_atomically")
    with pytest.raises(OSError, match="made to fail"):
        epochs.assign(1, 0)
    assert (epochs.entries(), epochs.latest, epochs.dirty) == ([], -1, False)
    epochs.assign(1, 0)
    assert epochs.dirty


@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EMFILE])
def test_a_file_that_cannot_be_written_for_now_holds_nothing_up(cause: int) -> None:
    files = MemoryFiles()
    epochs = epochs_of([(1, 0)], files)
    for change in (lambda: epochs.assign(2, 10), lambda: epochs.truncate_from_start(12)):
        files.fail("write_atomically", error=OSError(cause, "full"))
        change()
        assert epochs.unwritten
        assert epochs.dirty
    assert epochs.entries() == [(2, 10)]
    assert LeaderEpochs.load(files, "/d").entries() == [(1, 0)]
    files.fail("write_atomically", error=OSError(cause, "full"))
    with pytest.raises(OSError, match="full"):
        epochs.write_unwritten()
    epochs.write_unwritten()
    assert not epochs.unwritten
    assert LeaderEpochs.load(files, "/d").entries() == [(2, 10)]


def test_what_goes_at_a_start_and_comes_back_is_not_written() -> None:
    files = MemoryFiles()
    files.make_directory("/data")
    LeaderEpochs(files, "/data").assign_many([(0, 0), (3, 10)])

    def loaded() -> tuple[LeaderEpochs, int]:
        return LeaderEpochs.load(files, "/data"), files.calls["write_atomically"]

    epochs, writes = loaded()
    epochs.truncate_from_end(10, loading=True)
    assert (epochs.entries(), epochs.latest) == ([(0, 0)], 0)
    epochs.assign(3, 10)
    assert (epochs.dirty, epochs.unwritten) == (False, False)
    assert files.calls["write_atomically"] == writes
    assert loaded()[0].entries() == epochs.entries() == [(0, 0), (3, 10)]

    epochs, writes = loaded()
    epochs.truncate_from_end(10, loading=True)
    epochs.assign(4, 10)
    assert files.calls["write_atomically"] == writes + 1
    assert loaded()[0].entries() == epochs.entries() == [(0, 0), (4, 10)]

    epochs, writes = loaded()
    epochs.truncate_from_end(0, loading=True)
    epochs.truncate_from_end(0, loading=True)
    assert epochs.dirty
    epochs.write_unwritten()
    assert files.calls["write_atomically"] == writes + 1
    assert loaded()[0].entries() == epochs.entries() == []


def test_an_epoch_that_is_written_later_needs_a_file_and_is_written_with_the_next_change() -> None:
    files = MemoryFiles()
    epochs = epochs_of([], files)
    epochs.assign_later(0, 0)  # without a file, a crash would cost the next start a read of the whole log
    assert LeaderEpochs.load(files, "/d").entries() == [(0, 0)]
    writes = files.calls["write_atomically"]
    epochs.assign_later(1, 10)
    epochs.assign_later(1, 12)
    epochs.assign_later(4, 20)
    assert (files.calls["write_atomically"], epochs.dirty, epochs.unwritten) == (writes, True, True)
    assert (epochs.entries(), epochs.latest, epochs.end_offset_for(1, 30)) == ([(0, 0), (1, 10), (4, 20)], 4, (1, 20))
    crashed = LeaderEpochs.load(files, "/d")
    assert (crashed.intact, crashed.entries()) == (True, [(0, 0)])
    epochs.write_unwritten()
    assert (files.calls["write_atomically"], epochs.unwritten) == (writes + 1, False)
    assert LeaderEpochs.load(files, "/d").entries() == epochs.entries()
    epochs.assign_later(5, 25)
    epochs.truncate_from_end(22)
    assert not epochs.unwritten
    assert LeaderEpochs.load(files, "/d").entries() == [(0, 0), (1, 10), (4, 20)]


def test_an_epoch_that_comes_back_at_a_start_need_not_be_written_later() -> None:
    files = MemoryFiles()
    epochs_of([(0, 0), (3, 10)], files)
    epochs = LeaderEpochs.load(files, "/d")
    epochs.truncate_from_end(10, loading=True)
    epochs.assign_later(3, 10)
    assert (epochs.dirty, epochs.unwritten) == (False, False)
    epochs.truncate_from_end(10, loading=True)
    epochs.assign_later(4, 10)
    assert (epochs.dirty, epochs.unwritten) == (True, True)
