"""A walk over the batches of a segment that checks each of them and gathers what its indexes hold. Only reads.

This is where a start after a crash spends its time, so the loop below does everything at once, with one struct call
and one checksum a batch and no function call beside: well below a microsecond a batch. With batches of a hundred bytes
that is still most of a second for 100 MB, so another process can continue a walk in the middle:

    job = scan.job()                        # JSON
    there: other = Scan.from_job(job); other.run(file) to its end; other.findings(), other.offset_entries, ...
    scan.complete(findings, offset_entries, time_entries)

A valid batch has magic 2, a length that holds a header and ends inside the file, offsets that ascend and fit the
indexes (relative int32), and the right CRC-32C. The first that is not valid ends the walk: nothing behind it can be
trusted (Kafka's LogSegment.recover).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from gregor.protocol.records.checksum import crc32c
from gregor.storage.segment.batches import (
    CRC_POSITION,
    CRC_START,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAX_RELATIVE_OFFSET,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
)
from gregor.storage.segment.index import OffsetIndex, TimeIndex
from gregor.storage.segment.producer_trail import Header, ProducerTrail

if TYPE_CHECKING:
    from gregor.storage.fs.files import File

WINDOW_BYTES = 128 * 1024
"""Read and checked in one step: a millisecond's work when the batches are as small as they get."""

_HEADER = Struct(">qiibIhi8xqqhi")
"""As batches.HEADER, without two fields that are not used here: the base timestamp and the record count."""

_MIN_LENGTH = HEADER_BYTES - LENGTH_OVERHEAD
_HIGHEST_PLAIN_ATTRIBUTES = TRANSACTIONAL_BIT - 1


class ScanState(NamedTuple):
    """How far a walk has come in a segment, and what it must know of the batches below that position."""

    position: int
    """Up to here every batch is valid."""
    next_offset: int
    entry_position: int
    """Of the batch that the last index entry points to."""
    max_timestamp: int
    max_timestamp_offset: int
    indexed_timestamp: int
    """Of the last entry of the time index."""
    last_epoch: int

    @classmethod
    def at_start(cls, base_offset: int) -> ScanState:
        return cls(0, base_offset, 0, NO_TIMESTAMP, base_offset, NO_TIMESTAMP, -1)


_STATE = ScanState._fields


class Scan:
    """How far a segment is checked, and what its batches have shown."""

    __slots__ = (
        *_STATE,
        "base_offset",
        "batches",
        "end",
        "epochs",
        "from_position",
        "index_interval_bytes",
        "is_delegated",
        "is_over",
        "offset_entries",
        "time_entries",
        "trail",
        "valid",
        "was_refused",
    )

    # The fields of ScanState: attributes of the walk itself, as the loop below changes them with every window.
    position: int
    next_offset: int
    entry_position: int
    max_timestamp: int
    max_timestamp_offset: int
    indexed_timestamp: int
    last_epoch: int

    def __init__(
        self,
        base_offset: int,
        end: int,
        index_interval_bytes: int,
        state: ScanState | None = None,
        *,
        trail: ProducerTrail | None = None,
        epochs: list[tuple[int, int]] | None = None,
    ) -> None:
        """`base_offset` and `end` (in bytes) are those of the segment; without a `state` the walk begins with the
        segment. `epochs` gets (leader epoch, base offset) where one begins that is above `last_epoch`."""
        self.base_offset = base_offset
        self.end = end
        self.index_interval_bytes = index_interval_bytes
        self._set_state(ScanState.at_start(base_offset) if state is None else state)
        self.from_position = self.position
        self.trail = ProducerTrail() if trail is None else trail
        self.epochs: list[tuple[int, int]] = [] if epochs is None else epochs
        self.offset_entries = bytearray()
        self.time_entries = bytearray()
        self.batches = 0
        """The number of batches that were found."""
        self.valid = True
        """False once something was found that is no valid batch and not merely cut short."""
        self.is_over = False
        self.is_delegated = False
        """Another process continues the walk, until this is False again."""
        self.was_refused = False
        """Another process has returned the walk unfinished."""

    def _set_state(self, state: ScanState) -> None:
        (self.position, self.next_offset, self.entry_position, self.max_timestamp, self.max_timestamp_offset,
         self.indexed_timestamp, self.last_epoch) = state  # fmt: skip

    def remaining_batches(self) -> int:
        """Estimate the batches that are not checked yet from the size of those that are."""
        checked_bytes = self.position - self.from_position
        return (self.end - self.position) * self.batches // checked_bytes if checked_bytes else 0

    def run(self, log: File) -> Generator[int, None, None]:
        """Walk to the end; yields the present position about every millisecond. Must not be resumed once another
        process has completed the scan."""
        end, read_into = self.end, log.read_into
        window = bytearray(min(WINDOW_BYTES, max(end - self.position, 0)))
        view = memoryview(window)
        while self.valid and self.position + HEADER_BYTES <= end:
            position = self.position
            filled = read_into(view[: end - position], position)
            checked = self._check_window(window, view, filled)
            if not checked and self.valid:
                # The first batch does not fit the window, or is cut off.
                stop = int.from_bytes(view[8:LENGTH_OVERHEAD], signed=True) + LENGTH_OVERHEAD
                if filled < HEADER_BYTES or position + stop > end:
                    break
                crc = int.from_bytes(view[CRC_POSITION:CRC_START])
                self.valid = (yield from _checksum(log, position, stop, view)) == crc
                if self.valid:
                    # The checksum's windows have overwritten the header.
                    filled = read_into(view[: end - position], position)
                    checked = self._check_window(window, view, filled, stop)
            if not checked:
                break
            yield self.position
        self.is_over = True

    def _check_window(self, window: bytearray, view: memoryview, filled: int, checked_stop: int = -1) -> int:
        """Check the batches that lie whole in the window's first `filled` bytes; a first one that ends at
        `checked_stop`, behind the window, has the right checksum. Returns how many bytes of valid batches there are."""
        segment_offset, interval_bytes = self.base_offset, self.index_interval_bytes
        highest_next_offset = segment_offset + MAX_RELATIVE_OFFSET + 1
        trail, offset_entries, time_entries = self.trail, self.offset_entries, self.time_entries
        unpack_header = _HEADER.unpack_from
        # Batches without a producer go where nothing is kept.
        keep_header = deque[Header](maxlen=0).append
        producer_in_hand = -1
        (position, next_offset, entry_position, max_timestamp, max_timestamp_offset, indexed_timestamp,
         last_epoch) = [getattr(self, name) for name in _STATE]  # fmt: skip
        at, last_header, batches = 0, filled - HEADER_BYTES, 0
        entry_due_after = entry_position + interval_bytes - position
        while at <= last_header:
            base_offset, length, epoch, magic, crc, attributes, delta, timestamp, producer_id, _, _ = header = (
                unpack_header(window, at)
            )
            stop = at + length + LENGTH_OVERHEAD
            following = base_offset + delta + 1  # the delta is vouched for by the checksum
            if magic != 2 or length < _MIN_LENGTH or base_offset < next_offset or following > highest_next_offset:
                self.valid = False
                break
            if stop > filled:
                if at or stop != checked_stop:
                    break
            elif crc32c(view[at + CRC_START : stop]) != crc:
                self.valid = False
                break
            next_offset = following
            batches += 1
            if timestamp > max_timestamp:
                max_timestamp, max_timestamp_offset = timestamp, following - 1
            if at > entry_due_after:
                entry_position = position + at
                entry_due_after = at + interval_bytes
                offset_entries += OffsetIndex.ENTRY.pack(following - 1 - segment_offset, entry_position)
                if max_timestamp > indexed_timestamp:
                    time_entries += TimeIndex.ENTRY.pack(max_timestamp, max_timestamp_offset - segment_offset)
                    indexed_timestamp = max_timestamp
            if epoch > last_epoch:
                last_epoch = epoch
                self.epochs.append((epoch, base_offset))
            if producer_id == producer_in_hand and attributes <= _HIGHEST_PLAIN_ATTRIBUTES:
                keep_header(header)
            elif producer_id >= 0 and attributes > _HIGHEST_PLAIN_ATTRIBUTES:
                trail.note_transaction()
            elif producer_id >= 0:
                producer_in_hand = producer_id
                keep_header = trail.recent(producer_id).append
                keep_header(header)
            at = stop
        self.batches += batches
        (self.position, self.next_offset, self.entry_position, self.max_timestamp, self.max_timestamp_offset,
         self.indexed_timestamp, self.last_epoch) = (
            position + at, next_offset, entry_position, max_timestamp, max_timestamp_offset, indexed_timestamp,
            last_epoch,
        )  # fmt: skip
        return at

    def finish(self) -> None:
        """End the time index with the largest timestamp, as that of a segment that was closed."""
        if self.max_timestamp > self.indexed_timestamp:
            self.time_entries += TimeIndex.ENTRY.pack(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            self.indexed_timestamp = self.max_timestamp

    # Between processes

    def delegate(self) -> None:
        """Note that another process continues the walk."""
        self.is_delegated = True

    def end_delegation(self) -> None:
        """Note that the other process is done with the walk. Unless it has completed it, the walk continues here."""
        self.was_refused = not self.is_over
        self.is_delegated = False

    def job(self) -> dict[str, int]:
        """Return what another process needs to continue the walk, for `from_job`."""
        return {name: getattr(self, name) for name in ("base_offset", "end", "index_interval_bytes", *_STATE)}

    @classmethod
    def from_job(cls, job: Mapping[str, int]) -> Scan:
        """Make the walk that continues another one, from its `job`."""
        state = ScanState(*(job[name] for name in _STATE))
        return cls(job["base_offset"], job["end"], job["index_interval_bytes"], state)

    def findings(self) -> dict[str, Any]:
        """Return the result of a walk for `complete`, without the index entries; it survives JSON."""
        return {
            "state": [getattr(self, name) for name in _STATE],
            "batches": self.batches,
            "valid": self.valid,
            "epochs": self.epochs,
            "trail": self.trail.to_fields(),
        }

    def complete(self, findings: Mapping[str, Any], offset_entries: bytes, time_entries: bytes) -> None:
        """Add the result of another process, which has continued the walk from here to the end."""
        self._set_state(ScanState(*findings["state"]))
        self.batches += findings["batches"]
        self.valid = findings["valid"]
        self.epochs += [(epoch, offset) for epoch, offset in findings["epochs"]]
        self.trail.extend(findings["trail"])
        self.offset_entries += offset_entries
        self.time_entries += time_entries
        self.is_over = True


def _checksum(log: File, position: int, size_bytes: int, view: memoryview) -> Generator[int, None, int]:
    """Compute the CRC-32C of a batch that does not fit the window. Its length field may be wrong, so no memory is
    allocated by it."""
    crc = 0
    at, end = position + CRC_START, position + size_bytes
    while at < end:
        count = log.read_into(view[: end - at], at)
        if not count:
            break
        crc = crc32c(view[:count], crc)
        at += count
        yield position
    return crc
