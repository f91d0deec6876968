"""Transaction indexes with one thing wrong each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gregor.protocol.records.control import EndTransaction
from gregor.storage.segment.transaction_index import (
    AbortedTransaction,
    format_transaction,
    parse_transaction_index,
)
from gregor.storage.verify.segment import Expected, verify_segment
from gregor.storage.verify.transactions import MAX_PER_FILE, Problem, TransactionCheck
from tests.storage.logs import DIRECTORY, NOW_MS, append_marker, open_log, sequenced
from tests.storage.memory_files import MemoryFiles

INDEXES = [f"{DIRECTORY}/{base:020d}.txnindex" for base in (0, 4)]


def written() -> MemoryFiles:
    """Two segments. Producer 7 aborts in both, 8 commits a transaction over both, 9 aborts without data."""
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_leader(sequenced(7, 0, 0, transactional=True), 0, NOW_MS)
    log.append_as_leader(sequenced(8, 0, 0, transactional=True), 0, NOW_MS)
    append_marker(log, EndTransaction(7, 0, 1, commit=False))
    log.append_as_leader(sequenced(7, 0, 1, transactional=True), 0, NOW_MS)
    log.roll(NOW_MS)
    append_marker(log, EndTransaction(9, 0, 1, commit=False))
    append_marker(log, EndTransaction(7, 0, 1, commit=False))
    append_marker(log, EndTransaction(8, 0, 1, commit=True))
    log.close(clean=True)
    return files


def problems(files: MemoryFiles, log_start_offset: int | None = 0) -> list[Problem]:
    found: list[Problem] = []
    check = TransactionCheck(found.append, log_start_offset)
    expected = Expected([(0, 0)], {}, None, growing=False, records=False)
    for segment in open_log(files).segments:
        for _ in verify_segment(files, segment, expected, lambda finding: pytest.fail(str(finding)), 0, check):
            pass
    return found


def rewritten(number: int, how: Callable[[list[AbortedTransaction]], list[AbortedTransaction]]) -> MemoryFiles:
    files = written()
    entries = how(parse_transaction_index(files.read_bytes(INDEXES[number])))
    files.write_atomically(INDEXES[number], b"".join(map(format_transaction, entries)), sync=False)
    return files


def test_what_this_broker_writes_is_right() -> None:
    assert problems(written()) == []
    assert problems(written(), None) == []


def test_entries_of_what_no_marker_aborts_are_found() -> None:
    for entry in (AbortedTransaction(8, 4, 6, 7), AbortedTransaction(8, 1, 5, 6), AbortedTransaction(7, 3, 4, 1)):
        files = rewritten(1, lambda entries, entry=entry: [entry])  # type: ignore[misc]
        found = problems(files)
        assert {one.path for one in found} == {INDEXES[1]}
        assert f"an entry of producer {entry.producer_id} names offset {entry.last_offset}" in found[0].what


def test_markers_without_an_entry_are_found() -> None:
    (found,) = problems(rewritten(1, lambda entries: []))
    assert found.what == "the abort marker of producer 7 at offset 5 has no entry"
    files = written()
    files.unlink(INDEXES[0])
    (found,) = problems(files)
    assert (found.path, found.what) == (INDEXES[0], "the abort marker of producer 7 at offset 2 has no entry")


def test_entries_that_begin_too_late_are_found() -> None:
    files = rewritten(1, lambda entries: [entries[0]._replace(first_offset=4)])
    (found,) = problems(files)
    assert found.what == "the transaction that is aborted at offset 5 begins at 3, the entry has 4"
    assert problems(files, 4) == [], "what is deleted needs no entry"
    assert problems(files, None) == [], "a broker may have deleted it"


def test_entries_that_do_not_ascend_are_found() -> None:
    assert "does not ascend" in problems(rewritten(0, lambda entries: entries * 2))[0].what


def test_an_index_that_is_cut_short_or_of_another_version_is_found() -> None:
    for data, text in ((b"\0" * 33, "its size of 33 bytes"), (b"\0\1" + b"\0" * 32, "of version 1")):
        files = written()
        files.write_atomically(INDEXES[0], data, sync=False)
        assert text in problems(files)[0].what


def test_not_every_problem_is_listed() -> None:
    files = rewritten(0, lambda entries: [AbortedTransaction(1, 0, 0, 0)] * 100)
    found = problems(files)
    assert len(found) == MAX_PER_FILE + 1
    assert found[-1].what.endswith("more of the same are left out")


def test_entries_that_a_running_broker_has_added_meanwhile_are_no_problem() -> None:
    files = rewritten(1, lambda entries: [*entries, AbortedTransaction(7, 7, 8, 9)])
    assert problems(files) == []
