"""Record batches decoded to rows: checksums, codecs, transactions, bounds of offsets and timestamps.

Control batches and, with read_committed, the records of aborted transactions are left out as Kafka's consumer leaves
them out (CompletedFetch): an aborted transaction is open from its first offset until its producer's next abort marker,
or its last offset where that is known. Compaction and deletion may have removed the marker with its records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gregor.protocol.records.batch import (
    HEADER,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    CorruptBatch,
    RecordBatch,
)
from gregor.protocol.records.compression import NONE, DecompressionError, decompress
from gregor.protocol.records.control import ABORT, control_type
from gregor.protocol.records.message_sets import Message, iter_messages
from gregor.spark_jobs.arrow.columns import Malformed, parse
from gregor.spark_jobs.arrow.plan import NO_FILTERS, Filters
from gregor.spark_jobs.arrow.rows import BatchNumbers, RowBuilder
from gregor.spark_jobs.arrow.varints import Octets, Positions

BLOCK_ROWS = 32 * 1024
"""About so many records are parsed together: their positions and numbers stay in the processor's cache."""
BLOCK_BYTES = 8 * 1024 * 1024

MAX_OFFSET = 2**63 - 1

MAX_DECOMPRESSED_BYTES = 1024 * 1024 * 1024
"""Of one batch. Positions in a block must stay below 2 GiB."""


class Aborted(NamedTuple):
    """An aborted transaction, as a fetch response or a .txnindex names it."""

    first_offset: int
    producer_id: int
    last_offset: int = MAX_OFFSET
    """That of its abort marker, which a fetch response does not name."""


class AbortedTransactions:
    """Follows the aborted transactions along the batches of a partition."""

    def __init__(self) -> None:
        self._upcoming: list[Aborted] = []
        self._open: dict[int, int] = {}
        """The last offset of the transaction by its producer."""

    def replace(self, transactions: Iterable[Aborted]) -> None:
        """Follow these instead of those before: all that have offsets in the batches that come next. A marker that was
        not decoded before may be there no more."""
        self._upcoming = list(transactions)
        heapify(self._upcoming)
        self._open.clear()

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Return whether this batch of data belongs to an aborted transaction."""
        self._advance(batch.last_offset)
        return batch.is_transactional and batch.base_offset <= self._open.get(batch.producer_id, -1)

    def pass_marker(self, batch: RecordBatch) -> None:
        """Note a control batch. Raises CorruptBatch."""
        self._advance(batch.last_offset)
        if batch.record_count > 0 and batch.producer_id in self._open and _is_abort_marker(batch):
            del self._open[batch.producer_id]

    def _advance(self, offset: int) -> None:
        upcoming = self._upcoming
        while upcoming and upcoming[0].first_offset <= offset:
            found = heappop(upcoming)
            self._open[found.producer_id] = found.last_offset


def _is_abort_marker(batch: RecordBatch) -> bool:
    for record in batch.records():
        return control_type(record) == ABORT
    return False


@dataclass
class _Block:
    """Batches that are parsed together, with their plain records."""

    batches: list[RecordBatch] = field(default_factory=list)
    bodies: list[bytes | memoryview] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0

    def add(self, batch: RecordBatch, body: bytes | memoryview) -> None:
        self.batches.append(batch)
        self.bodies.append(body)
        self.rows += batch.record_count
        self.size_bytes += len(body)

    @property
    def is_full(self) -> bool:
        return self.rows >= BLOCK_ROWS or self.size_bytes >= BLOCK_BYTES


class Decoder:
    """Decodes the batches of one range, given in the order of their offsets, in any number of parts."""

    def __init__(
        self,
        rows: RowBuilder,
        start_offset: int,
        end_offset: int,
        *,
        aborted: AbortedTransactions | None = None,
        filters: Filters = NO_FILTERS,
        checks_crc: bool = True,
    ) -> None:
        """`aborted`: with read_committed. The rows have offsets from `start_offset` on and below `end_offset`."""
        self._rows = rows
        self._aborted = aborted
        self._filters = filters
        self._checks_crc = checks_crc
        self._first = max(start_offset, filters.min_offset or 0)
        self._end = end_offset if filters.max_offset is None else min(end_offset, filters.max_offset + 1)
        self.next_offset = start_offset
        """The offset after the last batch that was decoded: that of the next fetch."""

    def skip_to(self, offset: int) -> None:
        """Continue at an offset: the records below it are not wanted, also if their batch reaches beyond it."""
        self.next_offset = max(self.next_offset, offset)
        self._first = max(self._first, offset)

    def decode(self, data: bytes | memoryview) -> Iterator[pa.RecordBatch]:
        """Decode the complete batches in these bytes; what follows them is ignored. Raises CorruptRecords."""
        block = _Block()
        position, size = 0, len(data)
        while size - position > MAGIC_AT and self.next_offset < self._end:
            length = int.from_bytes(data[position + LENGTH_AT : position + LOG_OVERHEAD], signed=True)
            end = position + LOG_OVERHEAD + length
            if end > size:
                break
            try:
                if length < 0:
                    raise CorruptBatch(f"a batch with a length of {length}")
                if data[position + MAGIC_AT] < 2:
                    yield from self._rows_of(block)
                    block = _Block()
                    yield from self._rows_of_messages(data[position:end])
                else:
                    self._add(RecordBatch(data, position), block)
            except CorruptBatch as error:
                base_offset = int.from_bytes(data[position : position + 8], signed=True)
                raise self._rows.corrupt(base_offset, str(error)) from error
            if block.is_full:
                yield from self._rows_of(block)
                block = _Block()
            position = end
        yield from self._rows_of(block)

    def _add(self, batch: RecordBatch, block: _Block) -> None:
        """Add a batch to a block if it has rows of the range. Raises CorruptBatch."""
        if batch.last_offset_delta < 0 or batch.base_offset < 0:
            raise CorruptBatch(f"a last offset delta of {batch.last_offset_delta}")
        if batch.next_offset <= self.next_offset:
            return
        if batch.base_offset < self._end:
            body = self._body_if_wanted(batch)
            if body is not None:
                block.add(batch, body)
        self.next_offset = batch.next_offset

    def _rows_of_messages(self, entry: bytes | memoryview) -> Iterator[pa.RecordBatch]:
        messages = list(iter_messages(entry, MAX_DECOMPRESSED_BYTES))
        last_offset = messages[-1].offset
        if last_offset < 0:
            raise CorruptBatch(f"a message of offset {last_offset}")
        yield from self._rows.build_messages([one for one in messages if self._is_kept(one)])
        self.next_offset = max(self.next_offset, last_offset + 1)

    def _is_kept(self, message: Message) -> bool:
        filters = self._filters
        return (
            self._first <= message.offset < self._end
            and (filters.min_timestamp_ms is None or message.timestamp >= filters.min_timestamp_ms)
            and (filters.max_timestamp_ms is None or message.timestamp <= filters.max_timestamp_ms)
        )

    def _body_if_wanted(self, batch: RecordBatch) -> bytes | memoryview | None:
        """Return the plain records of a batch, or None if no row comes from it. Raises CorruptBatch."""
        if self._checks_crc and not batch.crc_ok():
            raise CorruptBatch("its CRC-32C is wrong")
        if batch.is_control:
            if self._aborted is not None:
                self._aborted.pass_marker(batch)
            return None
        if self._aborted is not None and batch.producer_id >= 0 and self._aborted.is_aborted(batch):
            return None
        if batch.last_offset < self._first or not batch.record_count or self._is_filtered(batch):
            return None
        body = batch.memory()[RECORD_BATCH_OVERHEAD:]
        if batch.compression == NONE:
            return body
        try:
            return decompress(batch.compression, body, MAX_DECOMPRESSED_BYTES)
        except DecompressionError as error:
            raise CorruptBatch(str(error)) from error

    def _is_filtered(self, batch: RecordBatch) -> bool:
        return self._filters.min_timestamp_ms is not None and batch.max_timestamp < self._filters.min_timestamp_ms

    def _rows_of(self, block: _Block) -> Iterator[pa.RecordBatch]:
        batches = block.batches
        if not batches:
            return
        counts = np.array([batch.record_count for batch in batches], dtype=np.int64)
        octets, firsts, ends = _joined(block)
        try:
            records = parse(octets, firsts, ends, counts, self._rows.wants_headers)
        except Malformed as error:
            batch = batches[error.batch]
            raise self._rows.corrupt(batch.base_offset, _problem(batch, block.bodies[error.batch])) from error
        numbers = BatchNumbers.of(batches, counts, records)
        bad = np.flatnonzero(numbers.offsets < 0)
        if len(bad):
            batch = batches[int(np.searchsorted(np.cumsum(counts), bad[0], side="right"))]
            raise self._rows.corrupt(batch.base_offset, f"a record of offset {numbers.offsets[bad[0]]}")
        yield from self._rows.build(octets, records, numbers, self._kept(batches, numbers))

    def _kept(self, batches: Sequence[RecordBatch], numbers: BatchNumbers) -> NDArray[np.int64] | None:
        """Return the indexes of the records within the bounds; None: all are."""
        filters = self._filters
        bounds = []
        if batches[0].base_offset < self._first:
            bounds.append(numbers.offsets >= self._first)
        if batches[-1].last_offset >= self._end:
            bounds.append(numbers.offsets < self._end)
        if filters.min_timestamp_ms is not None:
            bounds.append(numbers.timestamps_ms >= filters.min_timestamp_ms)
        if filters.max_timestamp_ms is not None:
            bounds.append(numbers.timestamps_ms <= filters.max_timestamp_ms)
        return np.flatnonzero(np.logical_and.reduce(bounds)) if bounds else None


def end_of_batches(data: bytes | memoryview) -> tuple[int, int]:
    """Return the offset after the last complete batch, and its leader epoch; -1 without one."""
    position, last, size = 0, -1, len(data)
    while size - position > MAGIC_AT:
        length = int.from_bytes(data[position + LENGTH_AT : position + LOG_OVERHEAD], signed=True)
        if length < 0 or position + LOG_OVERHEAD + length > size:
            break
        last = position
        position += LOG_OVERHEAD + length
    if last < 0:
        return -1, -1
    if data[last + MAGIC_AT] < 2 or size - last < RECORD_BATCH_OVERHEAD:
        return int.from_bytes(data[last : last + 8], signed=True) + 1, -1
    header = HEADER.unpack_from(data, last)
    return header[0] + header[6] + 1, header[2]


def _joined(block: _Block) -> tuple[Octets, Positions, Positions]:
    """Return the plain records of a block in one buffer, and the bounds of each batch's. Nothing is copied if no batch
    has a codec."""
    batches = block.batches
    if any(batch.compression for batch in batches):
        sizes = np.array([len(body) for body in block.bodies], dtype=np.int64)
        ends = np.cumsum(sizes)
        firsts = ends - sizes
        whole = block.bodies[0] if len(batches) == 1 else b"".join(block.bodies)
        return np.frombuffer(whole, dtype=np.uint8), firsts, ends
    base = batches[0].position
    end = batches[-1].position + batches[-1].size_bytes
    octets = np.frombuffer(memoryview(batches[0].buffer)[base:end], dtype=np.uint8)
    firsts = np.array([batch.position for batch in batches], dtype=np.int64) - (base - RECORD_BATCH_OVERHEAD)
    ends = np.array([batch.position + batch.size_bytes for batch in batches], dtype=np.int64) - base
    return octets, firsts, ends


def _problem(batch: RecordBatch, body: bytes | memoryview) -> str:
    """Describe what is wrong with the records, by the reader of one after the other."""
    try:
        for _ in batch.records_in(bytes(body)):
            pass
    except CorruptBatch as error:
        return str(error)
    return "its records are malformed"
