"""Checks the batches of one segment and makes its indexes anew, in a single pass of small steps.

This is where a start after a crash spends its time, so the loop below does everything at once, with one struct call
and one checksum a batch and no function call beside: about a microsecond a batch. A valid batch has magic 2, a length
that holds a header and ends inside the file, offsets that ascend and fit the indexes (relative int32), and the right
CRC-32C. The first that is not valid ends the segment: nothing behind it can be trusted (Kafka's LogSegment.recover).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage.batches import (
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAX_RELATIVE_OFFSET,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    ScannedBatch,
)
from storage.index import OffsetIndex, TimeIndex
from storage.producer_state import BATCHES_KEPT

if TYPE_CHECKING:
    from storage.segment import Segment

WINDOW_BYTES = 128 * 1024
"""What is read, and checked, in one step: a millisecond's work when the batches are as small as they get."""

_HEADER = Struct(">qiibIhi8xqqhi")
"""As batches.HEADER, without what nobody here looks at: the base timestamp and the record count."""

_LEAST_LENGTH = HEADER_BYTES - LENGTH_OVERHEAD
_HIGHEST_PLAIN_ATTRIBUTES = TRANSACTIONAL_BIT - 1

_Header = tuple[int, int, int, int, int, int, int, int, int, int, int]


class ProducerTrail:
    """Of all the batches of a walk through a log, those from which the producers' state can be made.

    The state holds a producer's last batches, its epoch, and where its open transaction began. So beside the last
    batches only the last marker leaves a trace in it, and the first transactional batch behind that. Keeping these
    costs a tenth of replaying every batch.
    """

    __slots__ = ("_markers", "_openers", "_recent", "from_offset")

    def __init__(self) -> None:
        self.from_offset: int | None = None
        """No batch at or above it was left out; None before the walk has begun."""
        self._recent: dict[int, deque[_Header]] = {}
        self._markers: dict[int, _Header] = {}
        self._openers: dict[int, _Header] = {}

    def begin(self, from_offset: int) -> None:
        """To be called with the first offset of each part of the walk."""
        self.from_offset = from_offset if self.from_offset is None else min(self.from_offset, from_offset)

    def recent(self, producer_id: int) -> deque[_Header]:
        """Where the headers of this producer's plain batches go, in order."""
        headers = self._recent.get(producer_id)
        if headers is None:
            headers = self._recent[producer_id] = deque(maxlen=BATCHES_KEPT)
        return headers

    def keep_special(self, header: _Header) -> None:
        """Takes in a batch that may be transactional or a control batch."""
        attributes, producer_id = header[5], header[8]
        if attributes & CONTROL_BIT:
            self._markers[producer_id] = header
            self._openers.pop(producer_id, None)
            return
        self.recent(producer_id).append(header)
        if attributes & TRANSACTIONAL_BIT:
            self._openers.setdefault(producer_id, header)

    def batches(self, from_offset: int) -> list[ScannedBatch]:
        """What to replay, in order, onto the state that holds everything below `from_offset`."""
        by_offset = {header[0]: header for headers in self._recent.values() for header in headers}
        by_offset.update((header[0], header) for header in self._markers.values())
        by_offset.update((header[0], header) for header in self._openers.values())
        return [
            (-1, length + LENGTH_OVERHEAD, base, base + delta, epoch, attributes, timestamp, producer_id,
             producer_epoch, sequence)
            for base, (_, length, epoch, _, _, attributes, delta, timestamp, producer_id, producer_epoch, sequence)
            in sorted(by_offset.items())
            if base >= from_offset
        ]  # fmt: skip


class CheckedSegment(NamedTuple):
    end_position: int
    """Where the last valid batch ends; a longer file has something else behind it."""
    next_offset: int
    checked_bytes: int


def check_segment(
    segment: Segment,
    from_offset: int = 0,
    *,
    index_interval_bytes: int = 4096,
    producers: ProducerTrail | None = None,
    epochs: list[tuple[int, int]] | None = None,
) -> Generator[int, None, CheckedSegment]:
    """Yields, about every millisecond, the position it has come to.

    What lies below `from_offset` is known to be good, index entries included: checking begins at the last batch below
    it that has an index entry, or with the segment. Each batch checked is noted in `producers`; `epochs` gets (leader
    epoch, base offset) where one begins that is higher than the last in it. Afterwards the segment's indexes are as if
    it had been closed: the time index ends with the largest timestamp. Cutting the file is the caller's.
    Raises OldMessageFormat.
    """
    segment.create_missing_indexes()
    segment_offset = next_offset = segment.base_offset
    offset_limit = segment_offset + MAX_RELATIVE_OFFSET
    start = _last_entry_below(segment, from_offset)
    checked_from = position = entry_position = start.position
    max_timestamp, max_timestamp_offset = start.max_timestamp, start.max_timestamp_offset
    indexed_timestamp = max_timestamp
    last_epoch = epochs[-1][0] if epochs else -1
    trail = ProducerTrail() if producers is None else producers
    trail.begin(start.first_offset)
    producer_in_hand = -1

    offset_entries, time_entries = bytearray(), bytearray()
    pack_offset_entry, pack_time_entry = OffsetIndex.ENTRY.pack, TimeIndex.ENTRY.pack
    unpack_header, crc_start, overhead, least_length = _HEADER.unpack_from, CRC_START, LENGTH_OVERHEAD, _LEAST_LENGTH
    read_into, end = segment.log.read_into, segment.size_bytes
    window = bytearray(min(WINDOW_BYTES, max(end - position, 0)))
    view = memoryview(window)
    valid = True
    while valid and position + HEADER_BYTES <= end:
        filled = read_into(view[: end - position], position)
        at, last_header = 0, filled - HEADER_BYTES
        entry_due_after = entry_position + index_interval_bytes - position
        while at <= last_header:
            base_offset, length, epoch, magic, crc, attributes, delta, timestamp, producer_id, _, _ = header = (
                unpack_header(window, at)
            )
            stop = at + length + overhead
            last_offset = base_offset + delta  # the delta is vouched for by the checksum
            if magic != 2 or length < least_length or base_offset < next_offset or last_offset > offset_limit:
                valid = False
                break
            if stop <= filled:
                if crc32c(view[at + crc_start : stop]) != crc:
                    valid = False
                    break
            elif at or position + stop > end:
                break
            elif (yield from _checksum(segment, position, stop, view)) != crc:
                valid = False
                break

            if timestamp > max_timestamp:
                max_timestamp, max_timestamp_offset = timestamp, last_offset
            if at > entry_due_after:
                entry_position = position + at
                entry_due_after = at + index_interval_bytes
                offset_entries += pack_offset_entry(last_offset - segment_offset, entry_position)
                if max_timestamp > indexed_timestamp:
                    time_entries += pack_time_entry(max_timestamp, max_timestamp_offset - segment_offset)
                    indexed_timestamp = max_timestamp
            if epoch > last_epoch:
                last_epoch = epoch
                if epochs is not None:
                    epochs.append((epoch, base_offset))
            if producer_id >= 0:
                if attributes > _HIGHEST_PLAIN_ATTRIBUTES:
                    trail.keep_special(header)
                else:
                    if producer_id != producer_in_hand:
                        producer_in_hand = producer_id
                        keep_header = trail.recent(producer_id).append
                    keep_header(header)
            next_offset = last_offset + 1
            at = stop
        if at == 0:
            break
        position += at
        yield position

    if start.entries and position == checked_from:
        # No valid batch where an index entry says there is one: so the index is not to be believed.
        return (
            yield from check_segment(
                segment, 0, index_interval_bytes=index_interval_bytes, producers=producers, epochs=epochs
            )
        )
    if not valid:
        segment.refuse_old_format(position)

    if max_timestamp > indexed_timestamp:
        time_entries += pack_time_entry(max_timestamp, max_timestamp_offset - segment_offset)
    _put_entries(segment.offset_index, start.entries, offset_entries)
    _put_entries(segment.time_index, start.time_entries, time_entries)
    segment.max_timestamp, segment.max_timestamp_offset = max_timestamp, max_timestamp_offset
    segment.bytes_since_index_entry = position - entry_position
    return CheckedSegment(position, next_offset, position - checked_from)


class _Start(NamedTuple):
    """Where checking begins, and what is known there of all batches below."""

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
            base_offset, _, _, magic, _, _, delta, *_ = HEADER.unpack(header)
            if magic == 2 and base_offset + delta == indexed_offset < offset:
                time_entries = segment.time_index.entries_below_offset(indexed_offset + 1)
                max_timestamp, max_offset = NO_TIMESTAMP, segment.base_offset
                if time_entries:
                    max_timestamp, relative_offset = segment.time_index.entry(time_entries - 1)
                    max_offset = segment.base_offset + relative_offset
                entries = segment.offset_index.entries_below_position(position + 1)
                return _Start(entries, time_entries, position, base_offset, max_timestamp, max_offset)
    return _Start(0, 0, 0, segment.base_offset, NO_TIMESTAMP, segment.base_offset)


def _put_entries(index: OffsetIndex | TimeIndex, kept: int, entries: bytearray) -> None:
    """Makes the index hold its first `kept` entries and these. Mostly it does: when only the process has crashed, what
    it wrote is there. Then no more is done to the file than to append what is missing."""
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


def _checksum(segment: Segment, position: int, size_bytes: int, view: memoryview) -> Generator[int, None, int]:
    """CRC-32C of a batch that does not fit the window. Its length may be a lie, so no memory is asked for it."""
    crc = 0
    at, end = position + CRC_START, position + size_bytes
    while at < end:
        count = segment.log.read_into(view[: end - at], at)
        if not count:
            break
        crc = crc32c(view[:count], crc)
        at += count
        yield position
    return crc
