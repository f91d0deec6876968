"""Transactions in a compacted log: what was aborted never counts, and markers stay as long as they are needed."""

from __future__ import annotations

import struct

import pytest

from gregor.protocol.records.batch import Record, RecordBatch, build_batch
from gregor.storage.segment.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    TransactionTrail,
    format_transaction,
    parse_transaction_index,
)
from tests.storage.compacting import all_batches, all_records, compact
from tests.storage.logs import DIRECTORY, NOW_MS, open_log
from tests.storage.memory_files import MemoryFiles
from tests.storage.transaction_twin import index_entries

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
DAY_MS = 86_400_000


def data(offset: int, producer_id: int, *keys: bytes, transactional: bool = True) -> bytearray:
    records = [Record(offset + at, NOW_MS, key, b"at-%d" % (offset + at), []) for at, key in enumerate(keys)]
    return build_batch(
        records, producer_id=producer_id, producer_epoch=0, base_sequence=0 if transactional else -1,
        transactional=transactional, leader_epoch=1,
    )  # fmt: skip


def marker(offset: int, producer_id: int, kind: bytes) -> bytearray:
    return build_batch(
        [Record(offset, NOW_MS, kind, b"\0\0\0\0\0\0", [])],
        producer_id=producer_id, producer_epoch=0, transactional=True, control=True, leader_epoch=1,
    )  # fmt: skip


class World:
    """A log as a follower would have it, and its aborted transactions."""

    def __init__(self, *batches: bytearray, aborted: list[AbortedTransaction] | None = None) -> None:
        self.files = MemoryFiles()
        self.log = open_log(
            self.files, cleanup_policy=frozenset(["compact"]), segment_bytes=10_000, delete_retention_ms=DAY_MS
        )
        for one in batches:
            self.log.append_as_follower(one, NOW_MS)
        self.end()
        if aborted:
            assert index_entries(self.log) == aborted

    def end(self) -> None:
        self.log.roll(NOW_MS)
        self.log.offsets.restore_high_watermark(self.log.log_end_offset)

    def compact(self, now_ms: int = NOW_MS) -> None:
        self.log.producers.expire(NOW_MS + 100 * DAY_MS)  # no batch stays for a producer's sake
        compact(self.files, self.log, now_ms)

    def again(self, now_ms: int) -> None:
        """Another run over all of it."""
        self.log.offsets.mark_cleaned_to(None)
        self.compact(now_ms)

    def shape(self) -> list[tuple[int, int, bool]]:
        return [(one.base_offset, one.record_count, one.is_control) for one in all_batches(self.log)]


TAILS = {
    "nothing": b"",
    "part of an entry": bytes(20),
    "zeros": bytes(34),
    "many zeros": bytes(5 * 34),
    "an entry behind zeros": bytes(34) + format_transaction(AbortedTransaction(9, 2, 3, 4)),
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
@pytest.mark.parametrize(("offset", "kept"), [(0, 0), (5, 0), (6, 1), (10, 2)])
def test_a_truncation_removes_what_a_power_cut_has_left_behind_the_entries(tail: bytes, offset: int, kept: int) -> None:
    files = MemoryFiles()
    index = TransactionIndex(files, "/1.txnindex", create=True)
    entries = [AbortedTransaction(7, 4, 5, 6), AbortedTransaction(8, 7, 9, 10)]
    content = b"".join(format_transaction(entry) for entry in entries)
    index.file.write(content + tail)
    index.truncate_to(offset)
    assert files.read_bytes("/1.txnindex") == content[: kept * 34]
    assert index.entries() == entries[:kept]
    index.append(AbortedTransaction(9, 10, 11, 12))
    assert len(index.entries()) == kept + 1


def test_a_truncation_keeps_no_zeros_at_all() -> None:
    files = MemoryFiles()
    index = TransactionIndex(files, "/0.txnindex", create=True)
    index.file.write(bytes(34))
    index.truncate_to(100)
    assert files.read_bytes("/0.txnindex") == b""


def test_an_aborted_record_never_takes_the_place_of_a_committed_one() -> None:
    world = World(
        data(0, 5, b"k"), marker(1, 5, COMMIT), data(2, 6, b"k", b"j"), marker(4, 6, ABORT),
        data(5, -1, b"z", transactional=False),
        aborted=[AbortedTransaction(6, 2, 4, 5)],
    )  # fmt: skip
    world.compact()
    values = {record.key: record.value for batch in all_batches(world.log) if not batch.is_control
              for record in batch.records()}  # fmt: skip
    assert values == {b"k": b"at-0", b"z": b"at-5"}
    # The abort marker outlives the run that dropped what it aborted, and so does its entry in the index.
    assert (4, 1, True) in world.shape()
    index = world.files.read_bytes(f"{DIRECTORY}/{0:020d}.txnindex")
    assert parse_transaction_index(index) == [AbortedTransaction(6, 2, 4, 5)]


def test_markers_go_after_their_delete_horizon() -> None:
    world = World(
        data(0, 6, b"k"), marker(1, 6, ABORT), data(2, 7, b"k"), marker(3, 7, COMMIT),
        data(4, -1, b"k", transactional=False),
        aborted=[AbortedTransaction(6, 0, 1, 2)],
    )  # fmt: skip
    world.compact()
    assert world.shape() == [(1, 1, True), (3, 1, True), (4, 1, False)]
    assert not any(one.has_delete_horizon for one in all_batches(world.log)), "batches of both were met"
    world.again(NOW_MS)
    assert [one.base_timestamp for one in all_batches(world.log) if one.is_control] == [NOW_MS + DAY_MS] * 2
    assert not world.files.exists(f"{DIRECTORY}/{0:020d}.txnindex")
    world.again(NOW_MS + DAY_MS - 1)
    assert len(world.shape()) == 3
    world.again(NOW_MS + DAY_MS)
    assert world.shape() == [(4, 1, False)]


def test_the_last_marker_of_a_live_producer_stays() -> None:
    """Its epoch fences older instances."""
    world = World(data(0, -1, b"k", transactional=False), marker(1, 7, COMMIT), data(2, -1, b"k", transactional=False))
    for now_ms in (NOW_MS, NOW_MS + DAY_MS, NOW_MS + 2 * DAY_MS):
        world.log.offsets.mark_cleaned_to(None)
        compact(world.files, world.log, now_ms)
    assert world.shape() == [(1, 0, True), (2, 1, False)]
    world.again(NOW_MS + 3 * DAY_MS)
    assert world.shape() == [(2, 1, False)]


def test_a_transaction_whose_marker_lies_further_on() -> None:
    world = World(data(0, 5, b"k"), data(1, 6, b"k"))
    world.log.append_as_follower(marker(2, 6, ABORT) + marker(3, 5, COMMIT), NOW_MS)
    world.end()
    assert index_entries(world.log) == [AbortedTransaction(6, 1, 2, 0)]
    world.compact()
    assert [record.offset for record in all_records(world.log) if record.key == b"k"] == [0]


def test_other_control_records_stay() -> None:
    world = World(marker(0, 7, b"\0\0\0\2"), data(1, -1, b"k", transactional=False))
    for _ in range(3):
        world.again(NOW_MS + 10 * DAY_MS)
    assert world.shape() == [(0, 1, True), (1, 1, False)]


def test_the_same_producer_aborts_and_commits() -> None:
    aborted = [AbortedTransaction(5, 2, 3, 9)]
    trail = TransactionTrail(aborted * 2, 0)
    met = []
    for batch in (data(0, 5, b"a"), marker(1, 5, COMMIT), data(2, 5, b"a"), marker(3, 5, ABORT), data(4, 5, b"a")):
        view = RecordBatch(batch)
        met.append(trail.ends_nothing(view) if view.is_control else trail.is_aborted(view))
    assert met == [False, False, True, False, False]


def test_a_walk_that_begins_behind_a_transaction_knows_nothing_of_it() -> None:
    trail = TransactionTrail([AbortedTransaction(5, 0, 1, 9)], 2)
    assert not trail.is_aborted(RecordBatch(data(2, 5, b"a")))


def test_the_index_file() -> None:
    entries = [AbortedTransaction(1, 2, 3, 4), AbortedTransaction(-1, 0, 2**62, 7)]
    content = b"".join(format_transaction(one) for one in entries)
    assert len(content) == 68
    assert parse_transaction_index(content) == entries
    assert parse_transaction_index(content[:-1]) == entries[:1]
    assert parse_transaction_index(b"") == []
    with pytest.raises(ValueError, match="version 1"):
        parse_transaction_index(struct.pack(">hqqqq", 1, 1, 2, 3, 4))
