"""The aborted transactions of a segment (.txnindex), and what compaction may drop because of them.

An entry of 34 bytes for each transaction whose abort marker lies in the segment, big-endian (Kafka's AbortedTxn):

    int16 version, 0; int64 producer id; int64 first offset; int64 last offset (of the marker); int64 last stable offset

Records of an aborted transaction are dropped, and must not count as the last of their keys. A marker, of either kind,
is needed as long as a record of its transaction is left. (Kafka's CleanedTransactionMetadata.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct, error
from typing import TYPE_CHECKING, NamedTuple

from gregor.protocol.records.batch import CorruptBatch

if TYPE_CHECKING:
    from gregor.protocol.records.batch import RecordBatch

_ENTRY = Struct(">hqqqq")
_MARKER_KEY = Struct(">hh")
_ABORT, _COMMIT = 0, 1


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def parse_transaction_index(data: bytes) -> list[AbortedTransaction]:
    """Parse the entries of a file; bytes after the last whole one are ignored. ValueError for an unknown version."""
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data[: len(data) - len(data) % _ENTRY.size]):
        if version > 0:
            raise ValueError(f"an aborted transaction of version {version}")
        entries.append(AbortedTransaction(*fields))
    return entries


def format_transaction(transaction: AbortedTransaction) -> bytes:
    return _ENTRY.pack(0, *transaction)


class TransactionTrail:
    """Follows the transactions in a walk over the batches of a log, from the first offset of the walk."""

    __slots__ = ("_aborted", "_committed", "_on_marker", "_upcoming")

    def __init__(
        self,
        aborted: Iterable[AbortedTransaction],
        from_offset: int,
        on_marker: Callable[[AbortedTransaction], None] = lambda _transaction: None,
    ) -> None:
        """`aborted` are those of the whole log. `on_marker` gets each aborted transaction whose marker must stay."""
        self._upcoming = sorted(
            {one for one in aborted if one.last_offset >= from_offset}, key=lambda one: one.first_offset, reverse=True
        )
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        """By producer id: the aborted transaction that is open, and whether a batch of it was found."""
        self._committed: set[int] = set()
        self._on_marker = on_marker

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Return whether this batch, which holds data, belongs to an aborted transaction."""
        if not batch.is_transactional:
            return False
        self._advance(batch.last_offset)
        found = self._aborted.get(batch.producer_id)
        if found is None:
            self._committed.add(batch.producer_id)
            return False
        self._aborted[batch.producer_id] = found[0], True
        return True

    def ends_nothing(self, batch: RecordBatch) -> bool:
        """Return whether this control batch ends a transaction of which no batch is left. Raises CorruptBatch."""
        self._advance(batch.last_offset)
        if not batch.record_count:
            return True
        kind = _marker_type(batch)
        if kind == _ABORT:
            found = self._aborted.pop(batch.producer_id, None)
            if found is None or not found[1]:
                return True
            self._on_marker(found[0])
            return False
        if kind == _COMMIT:
            met = batch.producer_id in self._committed
            self._committed.discard(batch.producer_id)
            return not met
        return False

    def _advance(self, offset: int) -> None:
        upcoming = self._upcoming
        while upcoming and upcoming[-1].first_offset <= offset:
            transaction = upcoming.pop()
            self._aborted.setdefault(transaction.producer_id, (transaction, False))


def _marker_type(batch: RecordBatch) -> int:
    for record in batch.records():
        try:
            _, kind = _MARKER_KEY.unpack_from(record.key or b"")
        except error:
            raise CorruptBatch(f"a control record without a type at offset {record.offset}") from None
        return int(kind)
    return -1
