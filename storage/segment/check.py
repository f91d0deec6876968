"""Check the batches of one segment and rebuild its indexes, from the part that is known to be valid on.

A walk over the rest (gregor.storage.segment.scan) finds the index entries; the index files are then as if the segment
had been closed.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from gregor.storage.segment.batches import HEADER_BYTES, MAGIC_POSITION, NO_TIMESTAMP, BatchHeader
from gregor.storage.segment.scan import Scan, ScanState

if TYPE_CHECKING:
    from gregor.storage.segment.index import OffsetIndex, TimeIndex
    from gregor.storage.segment.producer_trail import ProducerTrail
    from gregor.storage.segment.segment import Segment


class CheckedSegment(NamedTuple):
    end_position: int
    """The end of the last valid batch; a longer file has something else behind it."""
    next_offset: int
    checked_bytes: int


def check_segment(
    segment: Segment,
    from_offset: int = 0,
    *,
    index_interval_bytes: int = 4096,
    producers: ProducerTrail | None = None,
    epochs: list[tuple[int, int]] | None = None,
) -> Generator[Scan, None, CheckedSegment]:
    """Check a segment; yields the walk, with its present position, about every millisecond. Another process may
    continue the walk then (`Scan.job`, `Scan.complete`): the check is resumed when that process has completed it.

    Everything below `from_offset` is known to be valid, index entries included: checking begins at the last batch below
    it that has an index entry, or with the segment. Each batch checked is noted in `producers`; `epochs` gets (leader
    epoch, base offset) where one begins that is higher than the last in it. Afterwards the segment's indexes are as if
    it had been closed: the time index ends with the largest timestamp. Cutting the file is the caller's.
    Raises OldMessageFormat.
    """
    segment.create_missing_indexes()
    start = _last_entry_below(segment, from_offset)
    scan = Scan(
        segment.base_offset,
        segment.size_bytes,
        index_interval_bytes,
        ScanState(
            position=start.position,
            next_offset=segment.base_offset,
            entry_position=start.position,
            max_timestamp=start.max_timestamp,
            max_timestamp_offset=start.max_timestamp_offset,
            indexed_timestamp=start.max_timestamp,
            last_epoch=epochs[-1][0] if epochs else -1,
        ),
        trail=producers,
        epochs=epochs,
    )
    scan.trail.begin(start.first_offset)
    for _ in scan.run(segment.log):
        yield scan
        if scan.is_over:
            break
    if start.entries and scan.position == start.position:
        # There is no valid batch where an index entry points to: the index is wrong.
        return (
            yield from check_segment(
                segment, 0, index_interval_bytes=index_interval_bytes, producers=producers, epochs=epochs
            )
        )
    if not scan.valid:
        segment.refuse_old_format(scan.position)
    scan.finish()
    _put_entries(segment.offset_index, start.entries, scan.offset_entries)
    _put_entries(segment.time_index, start.time_entries, scan.time_entries)
    segment.checked(scan.max_timestamp, scan.max_timestamp_offset, scan.position - scan.entry_position)
    return CheckedSegment(scan.position, scan.next_offset, scan.position - start.position)


class _Start(NamedTuple):
    """The position where checking begins, and the state of the indexes below it."""

    entries: int
    time_entries: int
    position: int
    first_offset: int
    max_timestamp: int
    max_timestamp_offset: int


def _last_entry_below(segment: Segment, offset: int) -> _Start:
    indexed_offset, position = segment.offset_index.lookup(offset - 1)
    if position:
        header = segment.log.read(HEADER_BYTES, position)
        if len(header) == HEADER_BYTES:
            batch = BatchHeader.read(header)
            if header[MAGIC_POSITION] == 2 and batch.last_offset == indexed_offset < offset:
                time_entries = segment.time_index.entries_below_offset(indexed_offset + 1)
                max_timestamp, max_offset = NO_TIMESTAMP, segment.base_offset
                if time_entries:
                    max_timestamp, relative_offset = segment.time_index.entry(time_entries - 1)
                    max_offset = segment.base_offset + relative_offset
                entries = segment.offset_index.entries_below_position(position + 1)
                return _Start(entries, time_entries, position, batch.base_offset, max_timestamp, max_offset)
    return _Start(0, 0, 0, segment.base_offset, NO_TIMESTAMP, segment.base_offset)


def _put_entries(index: OffsetIndex | TimeIndex, kept: int, entries: bytearray) -> None:
    """Make the index hold its first `kept` entries and these. Mostly it does already: a crash of the process alone
    loses nothing that was written. Then only what is missing is appended to the file."""
    start = kept * index.ENTRY_BYTES
    have_bytes = index.file.size_bytes() - start
    if (
        not 0 <= have_bytes <= len(entries)
        or start + have_bytes != index.entries * index.ENTRY_BYTES
        or index.file.read(have_bytes, start) != entries[:have_bytes]
    ):
        index.truncate_entries(kept)
        have_bytes = 0
    index.append_packed(entries[have_bytes:])
