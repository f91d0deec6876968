"""A slow, obvious twin of the transactions in a log: it replays all batches by Apache Kafka's rules, at every question.

And a consumer with isolation.level=read_committed, as Java's Fetcher filters.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from gregor.protocol.records.batch import iter_batches
from gregor.storage.log.log import Log
from gregor.storage.segment.transaction_index import AbortedTransaction


class Appended(NamedTuple):
    """A batch of the log. `kind` is plain, transactional, commit or abort."""

    base_offset: int
    last_offset: int
    producer_id: int
    epoch: int
    kind: str
    keys: tuple[bytes, ...] = ()
    coordinator_epoch: int = -1


class TransactionTwin:
    """All batches that were appended, those of deleted segments included."""

    def __init__(self) -> None:
        self.batches: list[Appended] = []

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def truncate_to(self, offset: int) -> None:
        self.batches = [one for one in self.batches if one.last_offset < offset]

    def open_transactions(self, start_offset: int = 0) -> dict[int, int]:
        """The first offset of each, by producer id. Batches below the start offset count as never written."""
        found: dict[int, int] = {}
        for one in self.batches:
            if one.kind == "transactional" and one.last_offset >= start_offset:
                found.setdefault(one.producer_id, one.base_offset)
            elif one.kind in ("commit", "abort"):
                found.pop(one.producer_id, None)
        return found

    def stable_offsets(self, high_watermark: int, log_start_offset: int, decided_to: int) -> set[int]:
        """The last stable offset. There are several where a transaction may be forgotten of which every batch was
        deleted, or which has ended below `decided_to`."""
        found = set()
        for start_offset in (0, log_start_offset):
            known = self.first_unstable(max(high_watermark, decided_to), start_offset)
            firsts = [self.end_offset if known is None else known]
            firsts += [first for first, marker in self.ended(start_offset) if high_watermark <= marker < decided_to]
            found.update(min(max(first, log_start_offset), high_watermark) for first in firsts if first <= firsts[0])
        return found

    def ended(self, start_offset: int) -> list[tuple[int, int]]:
        """First offset and offset of the marker of each ended transaction."""
        found = []
        begun: dict[int, int] = {}
        for one in self.batches:
            if one.kind == "transactional" and one.last_offset >= start_offset:
                begun.setdefault(one.producer_id, one.base_offset)
            elif one.kind in ("commit", "abort") and one.producer_id in begun:
                found.append((begun.pop(one.producer_id), one.base_offset))
        return found

    def first_unstable(self, high_watermark: int, start_offset: int = 0) -> int | None:
        undecided = list(self.open_transactions(start_offset).values())
        undecided += [first for first, marker in self.ended(start_offset) if marker >= high_watermark]
        return min(undecided, default=None)

    def aborted(self) -> list[AbortedTransaction]:
        """In the order of the markers."""
        found = []
        begun: dict[int, int] = {}
        for one in self.batches:
            if one.kind == "transactional":
                begun.setdefault(one.producer_id, one.base_offset)
            elif one.kind in ("commit", "abort") and one.producer_id in begun:
                first = begun.pop(one.producer_id)
                if one.kind == "abort":
                    stable = min(begun.values(), default=one.base_offset + 1)
                    found.append(AbortedTransaction(one.producer_id, first, one.base_offset, stable))
        return found

    def committed(self, from_offset: int, upper_offset: int) -> dict[int, bytes]:
        """The keys of the records that a consumer must get, by offset."""
        fates: dict[int, bytes] = {}
        pending: dict[int, list[Appended]] = {}
        for one in self.batches:
            if one.kind == "transactional":
                pending.setdefault(one.producer_id, []).append(one)
            elif one.kind == "plain":
                fates.update(zip(range(one.base_offset, one.last_offset + 1), one.keys, strict=True))
            else:
                for batch in pending.pop(one.producer_id, []):
                    if one.kind == "commit":
                        fates.update(zip(range(batch.base_offset, batch.last_offset + 1), batch.keys, strict=True))
        return {offset: key for offset, key in fates.items() if from_offset <= offset < upper_offset}

    def coordinator_epochs(self) -> dict[int, int]:
        """Of the last marker of each producer."""
        return {one.producer_id: one.coordinator_epoch for one in self.batches if one.kind in ("commit", "abort")}


def consumed(log: Log, offset: int, max_bytes: int) -> dict[int, bytes]:
    """Consume committed records from the offset to the last stable offset; returns their keys by offset."""
    found: dict[int, bytes] = {}
    upper_offset = log.last_stable_offset
    while offset < upper_offset:
        piece = log.read(offset, max_bytes, upper_offset)
        batches = list(iter_batches(piece.read()))
        piece.release()
        if not batches:
            break
        upcoming = log.aborted_transactions(offset, min(batches[-1].next_offset, upper_offset))
        assert upcoming == sorted(upcoming, key=lambda one: one.first_offset)
        aborted: set[int] = set()
        for batch in batches:
            while upcoming and upcoming[0].first_offset <= batch.last_offset:
                aborted.add(upcoming.pop(0).producer_id)
            if batch.is_control:
                for record in batch.records():
                    if struct.unpack(">hh", record.key or b"")[1] == 0:
                        aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborted):
                found.update(
                    (record.offset, record.key or b"") for record in batch.records() if record.offset >= offset
                )
        offset = batches[-1].next_offset
    return {at: key for at, key in found.items() if at < upper_offset}


def index_entries(log: Log) -> list[AbortedTransaction]:
    """All entries of the transaction indexes."""
    return [
        entry
        for segment in log.segments
        if segment.transaction_index is not None
        for entry in segment.transaction_index.entries()
    ]
