"""Walks once through a segment and compares the files beside it with its batches. Changes nothing.

The conditions, and the consequences where they do not hold:

    batches         magic, length, CRC-32C, offsets that ascend: the log cannot be read behind the first invalid one
    offset index    ascending; each entry names the last offset of a batch, at a position where a batch begins that does
                    not lie behind it: else a reader misses records
    time index      ascending; up to each entry's offset no record is later than its timestamp, and one has it: else a
                    search by time misses records; a closed segment's last entry has its latest timestamp, by which
                    retention goes
    leader epochs   ascending, and as in leader-epoch-checkpoint: otherwise followers truncate to a wrong offset
    producers       a producer's last batch as in the snapshots: otherwise duplicates are stored or valid batches
    refused

Both indexes may have other entries than this broker would write: Apache Kafka adds one entry for several batches that
it appends together.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Generator, Mapping
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from gregor.protocol.records.batch import MAX_PLAIN_BYTES, CorruptBatch, RecordBatch
from gregor.storage.log.state import NEVER
from gregor.storage.segment.batches import (
    LENGTH_OVERHEAD,
    NO_TIMESTAMP,
    SEQUENCE_MASK,
    TRANSACTIONAL_BIT,
    BatchHeader,
    BatchWalk,
)
from gregor.storage.segment.index import OffsetIndex, TimeIndex
from gregor.storage.segment.segment import TRANSACTION_INDEX_SUFFIX, OldMessageFormat

if TYPE_CHECKING:
    from gregor.storage.fs.files import File, Files
    from gregor.storage.segment.segment import Segment
    from gregor.storage.verify.transactions import TransactionCheck

WINDOW_BYTES = 1024 * 1024
MAX_PER_FILE = 20
"""The number of problems of one kind that are reported for a file; every entry of a broken index may be wrong."""


class Finding(NamedTuple):
    """A problem. `harmless`: worth reporting, but no error."""

    path: str
    what: str
    remedy: str
    harmless: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.what}. {self.remedy}"


class LastBatch(NamedTuple):
    """A producer's last batch according to a producer snapshot."""

    producer_id: int
    epoch: int
    last_sequence: int
    snapshot: str


class Expected(NamedTuple):
    """The properties of batches according to the files beside the segments."""

    epochs: list[tuple[int, int]]
    """(epoch, start offset) of leader-epoch-checkpoint."""
    producers: Mapping[int, LastBatch]
    """By the offset of the last record."""
    next_base: int | None
    """Base offset of the following segment; None for the last one."""
    growing: bool
    """The last segment of a running broker: its end may be half written and its indexes behind."""
    records: bool
    """Check each record, too."""
    log_start_offset: int | None = 0
    """Batches below it are deleted, if not yet from the file, and their epochs are not in the checkpoint any more; None
    when it is not known."""
    may_have_room: bool = False
    """After a crash of Apache Kafka its last indexes end in zeros, which is no error."""


class Walked(NamedTuple):
    """The end of the valid batches of a segment."""

    next_offset: int
    end_position: int
    batches: int
    last_epoch: int


EPOCHS_AGAIN = (
    "Write `damaged` into the file while the broker is stopped: a start then reads the epochs from the batches"
)
PRODUCERS_AGAIN = (
    "Remove it, and .kafka_cleanshutdown, while the broker is stopped: a start then reads the batches again"
)
REBUILT = "A start rebuilds the index after both index files of this segment are removed while the broker is stopped"
COPY = (
    "Restore the file from a copy; or, while the broker is stopped, remove .kafka_cleanshutdown and "
    "recovery-point-offset-checkpoint: the next start truncates this log to the records before"
)


class _Entries:
    """The entries of an index, and the problems of their order. Zeros at the end are reserved room, not entries."""

    def __init__(
        self,
        index: OffsetIndex | TimeIndex,
        found: Callable[[Finding], None],
        missing_is_wrong: bool,
        may_have_room: bool,
    ) -> None:
        self.path = index.file.path
        self._found = found
        self._reported = 0
        self.columns: list[tuple[int, int]] = []
        self.present = True
        try:
            count = index.entries
            data = index.file.read(count * index.ENTRY_BYTES, 0)
            size_bytes = index.file.size_bytes()
        except FileNotFoundError:
            self.present = False
            if missing_is_wrong:
                self.note("the file is missing", "The next start rebuilds it")
            return
        self.columns = list(index.ENTRY.iter_unpack(data[: len(data) // index.ENTRY_BYTES * index.ENTRY_BYTES]))
        rest = size_bytes % index.ENTRY_BYTES
        if rest:
            self.note(f"its size of {size_bytes} bytes is no multiple of {index.ENTRY_BYTES}", REBUILT)
        elif size_bytes > len(data) and not may_have_room:
            room = size_bytes - len(data)
            self.note(f"{room} bytes of zeros follow its entries", "That is room a crash of Kafka left", harmless=True)

    def note(self, what: str, remedy: str, harmless: bool = False) -> None:
        self._reported += 1
        if self._reported <= MAX_PER_FILE:
            self._found(Finding(self.path, what, remedy, harmless))
        elif self._reported == MAX_PER_FILE + 1:
            self._found(Finding(self.path, "more of the same is left out", REBUILT, harmless))


class _OffsetEntries(_Entries):
    """Compares offset index entries with the batches of the walk."""

    def __init__(
        self, index: OffsetIndex, found: Callable[[Finding], None], missing_is_wrong: bool, may_have_room: bool
    ) -> None:
        super().__init__(index, found, missing_is_wrong, may_have_room)
        self._next = 0
        self._awaited: deque[tuple[int, int]] = deque()
        before = (-1, -1)
        kept = []
        for relative, position in self.columns:
            if relative <= before[0] or position <= before[1]:
                self.note(f"the entry of offset {index.base_offset + relative} does not ascend", REBUILT)
                continue
            before = (relative, position)
            kept.append((index.base_offset + relative, position))
        self.columns = kept
        self.next_position = kept[0][1] if kept else -1
        self.next_offset = -1

    def at(self, position: int, last_offset: int) -> None:
        """Compare a batch that begins at `position`. Must be called for those at or behind `next_position`, and for
        every batch while an offset is awaited."""
        while self._next < len(self.columns) and self.columns[self._next][1] <= position:
            offset, wanted = self.columns[self._next]
            if wanted < position:
                self.note(f"the entry of offset {offset} points to {wanted}, where no batch begins", REBUILT)
            else:
                self._awaited.append((offset, wanted))
            self._next += 1
        while self._awaited and self._awaited[0][0] <= last_offset:
            offset, wanted = self._awaited.popleft()
            if offset != last_offset:
                self.note(f"the entry of position {wanted} names offset {offset}, the last of no batch", REBUILT)
        self.next_position = self.columns[self._next][1] if self._next < len(self.columns) else 2**63
        self.next_offset = self._awaited[0][0] if self._awaited else 2**63

    def end(self, growing: bool) -> None:
        left = [*self._awaited, *self.columns[self._next :]]
        if left and not growing:
            self.note(f"{len(left)} entries from offset {left[0][0]} on lie behind the end of the log", REBUILT)


class _TimeEntries(_Entries):
    """Compares time index entries with the batches of the walk."""

    def __init__(
        self, index: TimeIndex, found: Callable[[Finding], None], missing_is_wrong: bool, may_have_room: bool
    ) -> None:
        super().__init__(index, found, missing_is_wrong, may_have_room)
        self._next = 0
        before = (-1, -1)
        kept = []
        for timestamp, relative in self.columns:
            if timestamp <= before[0] or relative < before[1]:
                self.note(f"the entry of timestamp {timestamp} does not ascend", REBUILT)
                continue
            before = (timestamp, relative)
            kept.append((timestamp, index.base_offset + relative))
        self.columns = kept
        self.next_offset = kept[0][1] if kept else 2**63

    def at(self, last_offset: int, latest: int) -> None:
        """Compare a batch that reaches the offset of the next entry; `latest` is the latest timestamp so far, including
        that of the batch."""
        while self._next < len(self.columns) and self.columns[self._next][1] <= last_offset:
            timestamp, offset = self.columns[self._next]
            if latest != timestamp:
                self.note(f"up to offset {offset} the latest timestamp is {latest}, the entry has {timestamp}", REBUILT)
            self._next += 1
        self.next_offset = self.columns[self._next][1] if self._next < len(self.columns) else 2**63

    def end(self, latest: int, closed: bool, growing: bool) -> None:
        left = self.columns[self._next :]
        if left and not growing:
            self.note(f"{len(left)} entries from offset {left[0][1]} on lie behind the end of the log", REBUILT)
        last = self.columns[-1][0] if self.columns else NO_TIMESTAMP
        if closed and self.present and not left and latest > last:
            self.note(f"its last timestamp is {last}, but records go up to {latest}", f"{REBUILT}; retention waits")


_START = Struct(">qiib")


def verify_segment(
    files: Files,
    segment: Segment,
    expected: Expected,
    found: Callable[[Finding], None],
    last_epoch: int = -1,
    transactions: TransactionCheck | None = None,
) -> Generator[int, None, Walked]:
    """Check a segment. Yields the bytes walked since the last yield, about every megabyte; returns the end of the valid
    batches. Problems go to `found`. `last_epoch` is that of the batch before the segment. Raises OSError."""
    end_position = segment.size_bytes
    closed = expected.next_base is not None
    offsets = _OffsetEntries(segment.offset_index, found, end_position > 0, expected.growing or expected.may_have_room)
    times = _TimeEntries(segment.time_index, found, end_position > 0, expected.growing or expected.may_have_room)
    epochs = _Epochs(segment, expected, found, last_epoch)
    producers = expected.producers
    position = reported = batches = 0
    next_offset, latest = segment.base_offset, NO_TIMESTAMP
    problem: str | None = None
    walk = segment.walk()
    for batch in walk:
        last_offset = batch.last_offset
        problem = _batch_problem(batch, walk, expected)
        if problem is not None:
            break
        batches += 1
        if batch.max_timestamp > latest:
            latest = batch.max_timestamp
        if batch.position >= offsets.next_position or last_offset >= offsets.next_offset:
            offsets.at(batch.position, last_offset)
        if last_offset >= times.next_offset:
            times.at(last_offset, latest)
        if batch.leader_epoch != epochs.last_epoch or batch.base_offset >= epochs.next_offset:
            epochs.begins(batch.leader_epoch, batch.base_offset)
        if last_offset in producers and batch.producer_id >= 0:
            _compare_producer(producers[last_offset], batch, found)
        if transactions is not None and batch.attributes & TRANSACTIONAL_BIT:
            transactions.add(batch, walk.window, batch.position - walk.window_position)
        next_offset = last_offset + 1
        position = batch.position + batch.size_bytes
        if position - reported >= WINDOW_BYTES:
            yield position - reported
            reported = position
    yield position - reported
    if position < end_position:
        rest = end_position - position
        if not (expected.growing and _is_torn(segment.log, position, end_position)):
            what = _old_format(segment, position) or problem or walk.problem or f"{rest} bytes are no batch"
            found(
                Finding(
                    segment.log.path, f"at position {position}: {what} ({rest} bytes behind the last good batch)", COPY
                )
            )
    else:
        offsets.end(expected.growing)
        times.end(latest, closed, expected.growing)
        if transactions is not None:
            has_index = files.exists(segment.stem + TRANSACTION_INDEX_SUFFIX)
            transactions.end_segment(segment, segment.open_transaction_index() if has_index else None, next_offset)
    return Walked(next_offset, position, batches, epochs.last_epoch)


class _Epochs:
    """Compares the leader epochs of batches with each other and with leader-epoch-checkpoint."""

    def __init__(self, segment: Segment, expected: Expected, found: Callable[[Finding], None], last_epoch: int) -> None:
        self.last_epoch = last_epoch
        self._path = segment.log.path
        self._expected = expected
        self._start_offsets = [*(offset for _, offset in expected.epochs), NEVER]
        self.next_offset = self._start_offsets[bisect_left(self._start_offsets, segment.base_offset)]
        """From here on, the file has another epoch than for the batches before."""
        self._found = found
        self._reported = 0

    def begins(self, epoch: int, base_offset: int) -> None:
        """Compare a batch that has another epoch than the one before it, or should have by the file."""
        if epoch < self.last_epoch:
            self._note(
                Finding(self._path, f"leader epoch {epoch} at offset {base_offset} follows {self.last_epoch}", COPY)
            )
        self.last_epoch = epoch
        slot = bisect_right(self._start_offsets, base_offset) - 1
        self.next_offset = self._start_offsets[slot + 1]
        recorded = self._expected.epochs[slot][0] if slot >= 0 else None
        start_offset = self._expected.log_start_offset
        forgotten = recorded is None and (start_offset is None or base_offset < start_offset)
        if epoch >= 0 and recorded != epoch and not forgotten:
            path = f"{self._path.rpartition('/')[0]}/leader-epoch-checkpoint"
            what = f"offset {base_offset} is of leader epoch {epoch}, the file has {recorded}"
            self._note(Finding(path, what, EPOCHS_AGAIN))

    def _note(self, finding: Finding) -> None:
        if self._reported < MAX_PER_FILE:
            self._reported += 1
            self._found(finding)


def _batch_problem(batch: BatchHeader, walk: BatchWalk, expected: Expected) -> str | None:
    """Describe the problem of a batch with a valid checksum; None without one."""
    if expected.next_base is not None and batch.last_offset >= expected.next_base:
        return f"offset {batch.last_offset} reaches into the next segment, which begins at {expected.next_base}"
    if expected.records:
        return _records_problem(
            walk.window, batch.position - walk.window_position, batch.base_offset, batch.last_offset
        )
    if not 0 <= batch.record_count <= batch.last_offset - batch.base_offset + 1:
        return f"{batch.record_count} records on offsets {batch.base_offset} to {batch.last_offset}"
    return None


def _records_problem(window: bytes | memoryview, at: int, base_offset: int, last_offset: int) -> str | None:
    before = base_offset - 1
    try:
        for record in RecordBatch(window, at).records(MAX_PLAIN_BYTES):
            if not before < record.offset <= last_offset:
                return f"a record of offset {record.offset} within the batch of offsets {base_offset} to {last_offset}"
            before = record.offset
    except CorruptBatch as error:
        return f"the records of offsets {base_offset} to {last_offset} cannot be read: {error}"
    return None


def _compare_producer(recorded: LastBatch, batch: BatchHeader, found: Callable[[Finding], None]) -> None:
    sequence = -1
    if batch.base_sequence >= 0:
        sequence = (batch.base_sequence + batch.last_offset - batch.base_offset) & SEQUENCE_MASK
    if (recorded.producer_id, recorded.epoch, recorded.last_sequence) != (
        batch.producer_id,
        batch.producer_epoch,
        sequence,
    ):
        found(
            Finding(
                recorded.snapshot,
                f"offset {batch.last_offset} is of producer {batch.producer_id}, epoch {batch.producer_epoch}, "
                f"sequence {sequence}; the snapshot has producer {recorded.producer_id}, epoch {recorded.epoch}, "
                f"sequence {recorded.last_sequence}",
                PRODUCERS_AGAIN,
            )
        )


def _is_torn(log: File, position: int, end_position: int) -> bool:
    """Return whether the bytes at the end are a batch that is being written."""
    head = log.read(_START.size, position)
    if len(head) < _START.size:
        return True
    _, length, _, magic = _START.unpack(head)
    return bool(magic == 2 and length >= 0 and position + length + LENGTH_OVERHEAD > end_position)


def _old_format(segment: Segment, position: int) -> str | None:
    try:
        segment.refuse_old_format(position)
    except OldMessageFormat:
        return "messages of the formats before 0.11 begin, which this broker does not serve"
    return None
