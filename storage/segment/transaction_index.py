"""The aborted transactions of a segment (.txnindex), and what compaction may drop because of them.

An entry of 34 bytes for each transaction whose abort marker lies in the segment, big-endian (Kafka's AbortedTxn):

    int16 version, 0; int64 producer id; int64 first offset; int64 last offset (of the marker); int64 last stable offset

Records of an aborted transaction are dropped, and must not count as the last of their keys. A marker, of either kind,
is needed as long as a record of its transaction is left. (Kafka's CleanedTransactionMetadata.)
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections.abc import Callable, Iterable
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from gregor.protocol.records.control import ABORT, COMMIT, control_type

if TYPE_CHECKING:
    from gregor.protocol.records.batch import RecordBatch
    from gregor.storage.fs.files import File, Files

_ENTRY = Struct(">hqqqq")
_LAST_OFFSET = Struct(">q")
_LAST_OFFSET_POSITION = 18
ENTRY_BYTES = _ENTRY.size


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """After the marker: all that begins below it is decided by markers up to this one."""


Aborted = list[AbortedTransaction]


def parse_transaction_index(data: bytes | bytearray) -> list[AbortedTransaction]:
    """Parse the entries of a file; bytes after the last whole one are ignored. ValueError for an unknown version."""
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_BYTES]):
        if version > 0:
            raise ValueError(f"an aborted transaction of version {version}")
        entries.append(AbortedTransaction(*fields))
    return entries


def format_transaction(transaction: AbortedTransaction) -> bytes:
    return _ENTRY.pack(0, *transaction)


class TransactionIndex:
    """The .txnindex of a segment, whose entries ascend by their last offset. (Kafka's TransactionIndex.)

    The file is made when the first transaction is aborted, and written at once: it is read together with the markers.
    Its content is kept in memory from the first read on, until the cache wants the memory.
    """

    __slots__ = ("_cache", "_content", "_file")

    def __init__(self, files: Files, path: str, *, create: bool = False) -> None:
        self._file: File = files.create(path) if create else files.open(path)
        self._cache = files.cache
        self._content: bytearray | None = None

    @property
    def file(self) -> File:
        return self._file

    def entries(self) -> list[AbortedTransaction]:
        """Return all entries. Raises ValueError for an unknown version."""
        return parse_transaction_index(self._load())

    def content(self) -> bytes:
        """Return the bytes of all entries."""
        return bytes(self._load())

    def collect(
        self, from_offset: int, upper_offset: int, found: list[AbortedTransaction], waits_for_disk: bool = True
    ) -> bool:
        """Add the transactions to `found` that have offsets from `from_offset` on and below `upper_offset`; returns
        whether no later segment can have more of them. Without `waits_for_disk` NotCached may be raised."""
        content = self._load(waits_for_disk)
        start = self._position_of(content, from_offset)
        for _, *fields in _ENTRY.iter_unpack(memoryview(content)[start:]):
            transaction = AbortedTransaction(*fields)
            if transaction.first_offset < upper_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= upper_offset:
                return True
        return False

    def append(self, transaction: AbortedTransaction) -> None:
        """Write an entry. After an OSError a part of it may be in the file, until `truncate_to`."""
        entry = format_transaction(transaction)
        if self._file.write(entry) != len(entry):
            raise OSError(errno.ENOSPC, "short write", self._file.path)
        if self._content is not None:
            self._content += entry

    def truncate_to(self, offset: int) -> None:
        """Remove the entries whose marker lies at the offset or behind it, and what is no entry. A power cut may leave
        zeros behind the synced entries, so the order of all entries is checked."""
        content = self._load()
        size_bytes = _ascending_bytes(content, offset)
        del content[size_bytes:]
        self._file.truncate(size_bytes)

    def prepare_appends(self) -> None:
        """Remove a part of an entry at the end of the file. Must be called once before the first append to an old
        file."""
        size_bytes = self._file.size_bytes()
        if size_bytes % ENTRY_BYTES:
            self._file.truncate(size_bytes - size_bytes % ENTRY_BYTES)

    def close(self) -> None:
        """Close the descriptor and drop the content; the index stays usable."""
        self._file.close()
        self._drop()
        self._cache.forget(self)

    def _load(self, waits_for_disk: bool = True) -> bytearray:
        content = self._content
        if content is None:
            size_bytes = self._file.size_bytes()
            content = bytearray(self._file.read(size_bytes, 0, waits_for_disk) if size_bytes else b"")
            del content[len(content) - len(content) % ENTRY_BYTES :]
            self._content = content
        self._cache.use(self, len(content), self._drop)
        return content

    def _drop(self) -> None:
        self._content = None

    @staticmethod
    def _position_of(content: bytearray, offset: int) -> int:
        """Return the position of the first entry whose marker lies at the offset or behind it."""
        slots = range(len(content) // ENTRY_BYTES)
        unpack_from, size = _LAST_OFFSET.unpack_from, ENTRY_BYTES
        slot = bisect_left(slots, offset, key=lambda slot: unpack_from(content, slot * size + _LAST_OFFSET_POSITION)[0])
        return slot * size


def _ascending_bytes(content: bytearray, offset: int) -> int:
    """Return the size of the first entries whose markers ascend and lie below the offset. A marker never has offset 0,
    as a batch of its transaction lies before it."""
    size_bytes = last_marker = 0
    for _, _, _, marker, _ in _ENTRY.iter_unpack(content):
        if not last_marker < marker < offset:
            break
        last_marker = marker
        size_bytes += ENTRY_BYTES
    return size_bytes


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
        if kind == ABORT:
            found = self._aborted.pop(batch.producer_id, None)
            if found is None or not found[1]:
                return True
            self._on_marker(found[0])
            return False
        if kind == COMMIT:
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
        return control_type(record)
    return -1
