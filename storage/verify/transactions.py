"""Compares the transaction indexes of a partition with its markers. Changes nothing.

Each entry names the abort marker of its producer: otherwise consumers with isolation.level=read_committed miss records.
Each abort marker whose transaction has batches in the log has an entry, which begins no later than they do: otherwise
such consumers get records that were aborted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gregor.protocol.records.batch import CorruptBatch, RecordBatch
from gregor.protocol.records.control import read_end_marker
from gregor.storage.segment.batches import CONTROL_BIT, BatchHeader
from gregor.storage.segment.transaction_index import (
    ENTRY_BYTES,
    AbortedTransaction,
    TransactionIndex,
    parse_transaction_index,
)

if TYPE_CHECKING:
    from gregor.storage.segment.segment import Segment

MAX_PER_FILE = 20
"""The number of problems that are reported for a file."""
REBUILT = (
    "Remove .kafka_cleanshutdown and recovery-point-offset-checkpoint while the broker is stopped: a start then builds"
    " the transaction indexes from the batches"
)


class Problem(NamedTuple):
    path: str
    what: str
    remedy: str = REBUILT


class TransactionCheck:
    """Follows the transactions in a walk over the batches of a partition."""

    def __init__(self, found: Callable[[Problem], None], log_start_offset: int | None) -> None:
        """`log_start_offset`: batches below it are deleted, if not yet from the file; None when it is not known."""
        self._found = found
        self._log_start_offset = log_start_offset
        self._first_offsets: dict[int, int] = {}
        """Of the open transactions, by producer id."""
        self._aborts: dict[int, tuple[int, int | None]] = {}
        """Abort markers of the present segment by offset: producer id, first offset of the transaction in the walk."""

    def add(self, batch: BatchHeader, window: bytes | memoryview, at: int) -> None:
        """Add a transactional batch, which begins at this position of the window."""
        producer_id = batch.producer_id
        if not batch.attributes & CONTROL_BIT:
            if batch.last_offset >= (self._log_start_offset or 0):
                self._first_offsets.setdefault(producer_id, batch.base_offset)
            return
        first_offset = self._first_offsets.pop(producer_id, None)
        try:
            marker = read_end_marker(RecordBatch(window, at))
        except CorruptBatch:
            return  # a check of records reports it
        if marker is not None and not marker.commit:
            self._aborts[batch.base_offset] = producer_id, first_offset

    def end_segment(self, segment: Segment, index: TransactionIndex | None, next_offset: int) -> None:
        """Compare the index of the segment that was walked up to `next_offset`; None without a file."""
        aborts, self._aborts = self._aborts, {}
        path = segment.stem + ".txnindex"
        problems: list[str] = []
        entries = [] if index is None else self._entries(index, problems)
        before = -1
        for entry in entries:
            if entry.last_offset >= next_offset:
                break  # a running broker has appended its marker since
            if entry.last_offset <= before:
                problems.append(f"the entry of offset {entry.last_offset} does not ascend")
            before = entry.last_offset
            producer_id, first_offset = aborts.pop(entry.last_offset, (-1, None))
            if producer_id != entry.producer_id:
                problems.append(
                    f"an entry of producer {entry.producer_id} names offset {entry.last_offset}, where no abort marker"
                    " of it is"
                )
            elif first_offset is not None and self._log_start_offset is not None and first_offset < entry.first_offset:
                problems.append(
                    f"the transaction that is aborted at offset {entry.last_offset} begins at {first_offset}, the entry"
                    f" has {entry.first_offset}"
                )
        for offset, (producer_id, first_offset) in aborts.items():
            if first_offset is not None:
                problems.append(f"the abort marker of producer {producer_id} at offset {offset} has no entry")
        for what in problems[:MAX_PER_FILE]:
            self._found(Problem(path, what))
        if len(problems) > MAX_PER_FILE:
            self._found(Problem(path, f"{len(problems) - MAX_PER_FILE} more of the same are left out"))

    def _entries(self, index: TransactionIndex, problems: list[str]) -> list[AbortedTransaction]:
        data = index.file.read(index.file.size_bytes(), 0)
        index.close()
        if len(data) % ENTRY_BYTES:
            problems.append(f"its size of {len(data)} bytes is no multiple of {ENTRY_BYTES}")
        try:
            return parse_transaction_index(data)
        except ValueError as error:
            problems.append(str(error))
            return []
