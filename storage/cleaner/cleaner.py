"""Compacts one log: reads its dirty part into a map of last offsets, and writes the remaining records to .cleaned
files.

    run = CleaningRun(files, job)
    run.build_map()                     # now `end_offset` is where this run will end
    for group in run.groups():
        cleaned = run.clean(group)      # <base offset>.log.cleaned and its indexes, synced

The log replaces the old segments by the result (storage.log.swap), group after group, before the next `clean`. All this
is work per record, so it is done in a process of its own (storage.cleaner.worker). It needs nothing that a log has in
memory: the job has it. (Kafka's Cleaner.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from gregor.protocol.records.batch import CorruptBatch, RecordBatch
from gregor.storage.cleaner.batch_filter import (
    Filtered,
    empty_batch,
    filter_batch,
    located_records,
    with_delete_horizon,
)
from gregor.storage.cleaner.offset_map import OffsetMap
from gregor.storage.log.compaction import SourceSegment, group_segments
from gregor.storage.segment.batches import NO_TIMESTAMP, BatchWalk
from gregor.storage.segment.index import OffsetIndex, TimeIndex
from gregor.storage.segment.leftovers import CLEANED_SUFFIX
from gregor.storage.segment.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    file_stem,
)
from gregor.storage.segment.transaction_index import (
    AbortedTransaction,
    TransactionTrail,
    format_transaction,
    parse_transaction_index,
)

if TYPE_CHECKING:
    from gregor.storage.fs.files import File, Files

MIN_WINDOW_BYTES = 64 * 1024
MAX_SEGMENT_BYTES = 2**31 - 1
"""An index entry holds the position of a batch as an int32."""


class CleaningJob(NamedTuple):
    """The complete input of a run. All of it survives JSON."""

    directory: str
    segments: list[tuple[int, int]]
    """(base offset, size in bytes) of all segments below the first uncleanable offset, in order."""
    first_dirty_offset: int
    first_uncleanable_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    map_load_factor: float
    window_bytes: int

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> CleaningJob:
        """Make a job from its `_asdict`, also after a conversion to JSON and back."""
        return cls(**{**fields, "segments": [(base, size) for base, size in fields["segments"]]})


class CleanedGroup(NamedTuple):
    """Some neighbouring segments and the one that replaces them."""

    base_offset: int
    sources: list[int]
    """Base offsets of the segments it is made of."""
    size_bytes: int
    bytes_read: int
    records_read: int
    records_kept: int


class CleaningRun:
    """One run over one log."""

    def __init__(
        self,
        files: Files,
        job: CleaningJob,
        producers: dict[int, tuple[int, int]],
        charge: Callable[[int], None] = lambda _size_bytes: None,
    ) -> None:
        """`producers`: of each live one the offset of its last record (-1: it wrote only markers) and its epoch.
        `charge` is called with the bytes read and written, and may wait, or raise to end the run."""
        self._files = files
        self._job = job
        self._producers = producers
        self._charge = charge
        span = job.first_uncleanable_offset - job.first_dirty_offset
        self._map = OffsetMap(job.map_bytes, job.map_load_factor, span)
        self._aborted = self._read_aborted()
        self._cleaned: CleanedSegment | None = None
        self._trail = TransactionTrail(self._aborted, 0, self._keep_aborted)
        self.map_bytes_read = 0

    @property
    def end_offset(self) -> int:
        """The first offset that this run leaves dirty: below the first uncleanable one if the map became full."""
        return self._map.latest_offset + 1

    def build_map(self) -> None:
        """Read the dirty part. Raises CorruptBatch, OSError."""
        job, latest = self._job, self._map
        start = job.first_dirty_offset
        latest.covers(start - 1)
        trail = TransactionTrail(self._aborted, start)
        put = latest.put
        for base_offset, size_bytes, next_base in self._segments():
            if next_base <= start:
                continue
            segment = Segment.open(self._files, job.directory, base_offset, size_bytes=size_bytes)
            position = segment.offset_index.lookup(start)[1] if start > base_offset else 0
            segment.offset_index.close()
            for batch in self._batches(segment, position):
                self.map_bytes_read += batch.size_bytes
                if batch.last_offset < start:
                    continue
                if batch.is_control:
                    trail.ends_nothing(batch)
                elif not trail.is_aborted(batch) and batch.record_count:
                    first = batch.base_offset
                    for _, _, _, _, delta, key, _ in located_records(batch)[1]:
                        if key is not None and first + delta >= start:
                            if latest.full:
                                segment.close()
                                return
                            put(key, first + delta)
                latest.covers(batch.last_offset)
            segment.close()
            latest.covers(next_base - 1)

    def groups(self) -> list[list[SourceSegment]]:
        """Return the groups that are merged into one segment each. Must be called after `build_map`. ValueError when
        the map had no room for the keys of the first batch: another run would fail in the same way."""
        job = self._job
        if self.end_offset <= job.first_dirty_offset < job.first_uncleanable_offset:
            raise ValueError(
                f"a single batch has more keys than the {self._map.limit} that log.cleaner.dedupe.buffer.size and "
                f"log.cleaner.io.buffer.load.factor have room for"
            )
        stems = [(base, size, file_stem(job.directory, base)) for base, size in job.segments if base < self.end_offset]
        sources = [
            SourceSegment(base, size, self._size_of(stem + INDEX_SUFFIX), self._size_of(stem + TIME_INDEX_SUFFIX))
            for base, size, stem in stems
        ]
        return group_segments(
            sources,
            segment_bytes=job.segment_bytes,
            index_bytes=job.index_bytes,
            first_uncleanable_offset=job.first_uncleanable_offset,
        )

    def clean(self, group: list[SourceSegment]) -> CleanedGroup:
        """Write the segment that replaces a group, and sync it. Must be called once for each group, in order. After an
        error its files are removed. Raises CorruptBatch, OSError."""
        job = self._job
        cleaned = self._cleaned = CleanedSegment(
            self._files, job.directory, group[0].base_offset, job.index_interval_bytes, job.window_bytes
        )
        bytes_read = records_read = records_kept = 0
        spare_bytes = MAX_SEGMENT_BYTES - sum(source.size_bytes for source in group)
        try:
            for source in group:
                segment = Segment.open(self._files, job.directory, source.base_offset, size_bytes=source.size_bytes)
                for batch in self._batches(segment, 0):
                    filtered = self._filter(batch)
                    grown_bytes = len(filtered.data or b"") - batch.size_bytes
                    if grown_bytes > max(0, spare_bytes):  # by a delete horizon, or compressed once more
                        filtered, grown_bytes = _unchanged(batch), 0
                    spare_bytes -= grown_bytes
                    records_read += filtered.records_read
                    records_kept += filtered.records_kept
                    if filtered.data is not None:
                        cleaned.append(filtered.data, batch.last_offset, filtered.max_timestamp)
                        self._charge(len(filtered.data))
                bytes_read += source.size_bytes
                modified_ms = segment.log.modified_ms()
                segment.close()
            cleaned.finish(modified_ms)
        except BaseException:
            cleaned.discard()
            raise
        self._files.sync_directory(job.directory)
        return CleanedGroup(
            group[0].base_offset,
            [source.base_offset for source in group],
            cleaned.size_bytes,
            bytes_read,
            records_read,
            records_kept,
        )

    def _filter(self, batch: RecordBatch) -> Filtered:
        job = self._job
        retain_empty = self._is_last_of_producer(batch) or batch.last_offset + 1 == job.first_uncleanable_offset
        if batch.is_control:
            if not self._trail.ends_nothing(batch):
                return _unchanged(batch)
            if batch.record_count and not batch.has_delete_horizon:
                return with_delete_horizon(batch, job.now_ms + job.delete_retention_ms)
            if batch.record_count and batch.base_timestamp > job.now_ms:
                return _unchanged(batch)
        elif not self._trail.is_aborted(batch):
            return filter_batch(
                batch,
                self._map,
                now_ms=job.now_ms,
                delete_retention_ms=job.delete_retention_ms,
                retain_empty=retain_empty,
            )
        return Filtered(empty_batch(batch) if retain_empty else None, batch.max_timestamp, batch.record_count, 0)

    def _is_last_of_producer(self, batch: RecordBatch) -> bool:
        last = self._producers.get(batch.producer_id) if batch.producer_id >= 0 else None
        if last is None:
            return False
        last_offset, epoch = last
        if last_offset >= 0:
            return batch.last_offset == last_offset
        return batch.is_control and batch.producer_epoch == epoch

    def _keep_aborted(self, transaction: AbortedTransaction) -> None:
        if self._cleaned is not None:
            self._cleaned.append_aborted(transaction)

    def _segments(self) -> Iterator[tuple[int, int, int]]:
        """Yield (base offset, size in bytes, first offset behind it) of each segment."""
        segments = self._job.segments
        for index, (base_offset, size_bytes) in enumerate(segments):
            following = segments[index + 1][0] if index + 1 < len(segments) else self._job.first_uncleanable_offset
            yield base_offset, size_bytes, following

    def _batches(self, segment: Segment, position: int) -> Iterator[RecordBatch]:
        """Yield views into a window of the file; each is valid until the next one is requested. Raises CorruptBatch.

        Offsets that go back are refused as well. Apache Kafka's cleaner rewrites such a segment. But the base offset
        lies outside the checksum, so these offsets are damage that nothing else has noticed: the map of last offsets
        would then remove for good records that are not superseded, and the indexes of the new segment could not be
        searched. Refused, the log stays as it is and the partition is reported as uncleanable.
        """

        def read(size_bytes: int, at: int) -> bytes:
            window = segment.log.read(size_bytes, at)
            self._charge(len(window))
            return window

        walk = BatchWalk(
            read,
            position,
            segment.size_bytes,
            next_offset=segment.base_offset,
            checks_crc=False,
            window_bytes=max(self._job.window_bytes, MIN_WINDOW_BYTES),
        )
        for batch in walk:
            yield RecordBatch(walk.window, batch.position - walk.window_position)
        if walk.position < segment.size_bytes:
            raise CorruptBatch(f"{segment.log.path}: no whole batch at position {walk.position}")

    def _read_aborted(self) -> list[AbortedTransaction]:
        """Read the aborted transactions of all segments: a marker may lie far behind the records that it aborts."""
        aborted: list[AbortedTransaction] = []
        for entry in self._files.list_directory(self._job.directory):
            if entry.name.endswith(TRANSACTION_INDEX_SUFFIX) and entry.size_bytes:
                aborted += parse_transaction_index(self._files.read_bytes(f"{self._job.directory}/{entry.name}"))
        return aborted

    def _size_of(self, path: str) -> int:
        return self._files.open(path).size_bytes() if self._files.exists(path) else 0


class CleanedSegment:
    """A segment that is being written, under .cleaned names. Its indexes are the same as if its batches were appended
    (see gregor.storage.segment.segment)."""

    def __init__(
        self, files: Files, directory: str, base_offset: int, index_interval_bytes: int, buffer_bytes: int
    ) -> None:
        stem = file_stem(directory, base_offset)
        self._files = files
        self._base_offset = base_offset
        self._paths = [stem + suffix + CLEANED_SUFFIX for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
        self._transactions_path = stem + TRANSACTION_INDEX_SUFFIX + CLEANED_SUFFIX
        self._transactions = bytearray()
        self._interval_bytes = index_interval_bytes
        self._buffer_bytes = buffer_bytes
        self._buffer = bytearray()
        self._since_entry = 0
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self.size_bytes = 0
        try:
            self._log: File = files.create(self._paths[0])
            self._offset_index = OffsetIndex(files, self._paths[1], base_offset, create=True)
            self._time_index = TimeIndex(files, self._paths[2], base_offset, create=True)
        except OSError:
            self._unlink()
            raise

    def append(self, data: bytes | bytearray | memoryview, last_offset: int, max_timestamp: int) -> None:
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self._since_entry > self._interval_bytes:
            self._offset_index.append(last_offset, self.size_bytes)
            self._time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)
            self._since_entry = 0
        self._since_entry += len(data)
        self.size_bytes += len(data)
        self._buffer += data
        if len(self._buffer) >= self._buffer_bytes:
            self._write()

    def append_aborted(self, transaction: AbortedTransaction) -> None:
        self._transactions += format_transaction(transaction)

    def finish(self, modified_ms: int) -> None:
        """Complete and sync the files. The .log file gets the modification time of the last of its sources: retention
        uses it for records without timestamps."""
        self._write()
        if self._max_timestamp >= 0:
            self._time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)
        for index in (self._offset_index, self._time_index):
            index.write_pending()
        for file in (self._log, self._offset_index.file, self._time_index.file):
            file.sync()
        self._log.set_modified_ms(modified_ms)
        for closed in (self._log, self._offset_index, self._time_index):
            closed.close()
        if self._transactions:
            transactions = self._files.create(self._transactions_path)
            _write_all(transactions, self._transactions)
            transactions.sync()
            transactions.close()

    def discard(self) -> None:
        for closed in (self._log, self._offset_index, self._time_index):
            closed.close()
        self._unlink()

    def _write(self) -> None:
        buffer, self._buffer = self._buffer, bytearray()
        _write_all(self._log, buffer)

    def _unlink(self) -> None:
        for path in (*self._paths, self._transactions_path):
            self._files.unlink(path)


def _unchanged(batch: RecordBatch) -> Filtered:
    return Filtered(batch.memory(), batch.max_timestamp, batch.record_count, batch.record_count)


def _write_all(file: File, data: bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
