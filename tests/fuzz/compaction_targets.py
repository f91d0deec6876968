"""Targets of compaction: what it makes of a batch, and the index of aborted transactions that it reads."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from gregor.protocol.records.batch import CorruptBatch, RecordBatch, build_batch
from gregor.storage.cleaner.batch_filter import filter_batch, with_delete_horizon
from gregor.storage.cleaner.offset_map import OffsetMap
from gregor.storage.segment.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    TransactionTrail,
    format_transaction,
    parse_transaction_index,
)
from tests.fuzz.record_targets import batch_seeds, mend_batch
from tests.fuzz.runner import Seed, Target
from tests.storage.logs import NOW_MS
from tests.storage.memory_files import MemoryFiles


def targets() -> list[Target]:
    return [
        Target("compacted batches", compact, batch_seeds, (CorruptBatch,), weight=12, mend=mend_batch),
        Target("control batches", end_transaction, marker_seeds, (CorruptBatch,), weight=4, mend=mend_batch),
        Target("transaction indexes", read_index, index_seeds, (ValueError,), weight=4),
    ]


def compact(context: None, data: bytes) -> None:
    """Remove half of the records. The rest is a valid batch, and its records are unchanged."""
    batch = RecordBatch(data)
    before = list(batch.records())
    latest = OffsetMap(1 << 16, 0.9, 1000)
    latest.latest_offset = 2**62
    for record in before[::2]:
        if record.key is not None and not latest.full:
            latest.put(record.key, min(record.offset + 1, 2**62))
    for retain_empty in (True, False):
        result = filter_batch(batch, latest, now_ms=NOW_MS, delete_retention_ms=1000, retain_empty=retain_empty)
        if result.data is None:
            assert not retain_empty
            continue
        left = RecordBatch(bytes(result.data))
        assert left.crc_ok() and left.size_bytes == len(result.data)
        assert (left.base_offset, left.last_offset) == (batch.base_offset, batch.last_offset)
        records = list(left.records())
        assert len(records) == left.record_count == result.records_kept
        assert all(record in before for record in records)
    whole = with_delete_horizon(batch, NOW_MS) if before else None
    assert whole is None or list(RecordBatch(bytes(whole.data or b"")).records()) == before


def end_transaction(context: None, data: bytes) -> None:
    trail = TransactionTrail([AbortedTransaction(5, 0, 2**62, 0)], 0)
    batch = RecordBatch(data)
    trail.is_aborted(batch)
    trail.ends_nothing(batch)


def marker_seeds() -> list[Seed]:
    return [
        (None, bytes(build_batch([(kind, bytes(6))], base_offset=7, producer_id=5, transactional=True, control=True)))
        for kind in (bytes(4), b"\0\0\0\1", b"\0\0\0\2")
    ]


def index_seeds() -> list[Seed]:
    random = Random(4731)
    return [
        (
            None,
            b"".join(format_transaction(AbortedTransaction(*random.choices(range(10**9), k=4))) for _ in range(count)),
        )
        for count in (0, 1, 2, 50)
    ]


def read_index(context: None, data: bytes) -> None:
    """The index of a segment finds what a walk over every entry finds, where the entries ascend as they must."""
    entries = parse_transaction_index(data)
    assert len(entries) == len(data) // 34
    files = MemoryFiles()
    files.make_directory("/d")
    files.create("/d/0.txnindex").write(data)
    index = TransactionIndex(files, "/d/0.txnindex")
    ascends = all(one.last_offset < other.last_offset for one, other in pairwise(entries))
    middle = entries[len(entries) // 2].last_offset if entries else 0
    found: list[AbortedTransaction] = []
    is_complete = index.collect(middle, middle + 5, found)
    if ascends:
        seen = [one for one in entries if one.last_offset >= middle]
        ends = [at for at, one in enumerate(seen) if one.last_stable_offset >= middle + 5]
        assert is_complete == bool(ends)
        seen = seen[: ends[0] + 1] if ends else seen
        assert found == [one for one in seen if one.first_offset < middle + 5]
    index.prepare_appends()
    index.truncate_to(middle)
    assert len(files.read_bytes("/d/0.txnindex")) % 34 == 0
    if ascends and (not entries or entries[0].last_offset > 0):  # a marker has a batch of its transaction before it
        assert index.entries() == [one for one in entries if one.last_offset < middle]
