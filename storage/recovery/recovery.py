"""Loads a log from the folder of its partition, after a clean stop or a crash, in steps of about a millisecond.

After a crash the batches from the recovery point on are checked; the log ends before the first one that is torn or has
a wrong checksum, and segments behind it are removed. From the recovery point on indexes are rebuilt, and leader epochs
and the state of producers brought up to the log end offset. Everything below the recovery point was synced and is
trusted, so the cost depends on the bytes written since, not on the size of the log. (Kafka's LogLoader; it reads the
whole segment of the recovery point.)

A crash during recovery needs no special handling: the next start begins again at the same recovery point.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple

from gregor.storage.fs.disk_errors import is_full
from gregor.storage.log.contents import LoadedParts, LogIdentity
from gregor.storage.log.epochs import LeaderEpochs
from gregor.storage.log.log import Log, ignore_error
from gregor.storage.producers.replay import NO_INDEX, replay_batches
from gregor.storage.producers.state import ProducerStates
from gregor.storage.segment.batches import HEADER_BYTES, MAGIC_POSITION, BatchHeader
from gregor.storage.segment.check import check_segment
from gregor.storage.segment.index import OffsetIndex, TimeIndex
from gregor.storage.segment.leftovers import tidy_folder
from gregor.storage.segment.producer_trail import ProducerTrail
from gregor.storage.segment.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
)

if TYPE_CHECKING:
    from gregor.config.topic import LogConfig
    from gregor.storage.fs.files import Files
    from gregor.storage.segment.scan import Scan

_log = logging.getLogger(__name__)

GAPS_FILE = "gregor-gaps"
"""In the folder of a partition: the offset below which gaps between segments are those of Apache Kafka, in digits."""

BATCHES_PER_STEP = 1000
"""Headers that are read between two yields where nothing is checked."""

Steps = Generator[int, None, None]
"""Yields the number of bytes of segments that were processed since the last yield."""


class LogCheckpoint(NamedTuple):
    """The entries of the checkpoint files for one log."""

    log_start_offset: int = 0
    recovery_point: int = 0
    whole_from: int | None = None
    """The offset up to which the log is compacted, if the log is to end at the first gap from there on: other brokers
    have the missing batches. None: batches that a power cut has left behind a gap are kept, as Apache Kafka does."""
    high_watermark: int = 0


class FolderLoader:
    """Loads one partition's folder. `unlinkable` fills with paths for a thread to unlink."""

    def __init__(
        self,
        files: Files,
        directory: str,
        identity: LogIdentity,
        config: LogConfig,
        checkpoint: LogCheckpoint,
        *,
        producer_expiration_ms: int,
        now_ms: int,
        on_error: Callable[[Log, OSError], None] = ignore_error,
    ) -> None:
        """`on_error` is that of the log."""
        self.unlinkable: list[str] = []
        self.scan: Scan | None = None
        """Between two steps: the walk over a segment that is under way. Another process may continue it; the next step
        must then wait until it `is_over`."""
        self.scanned_path = ""
        """Of that segment's .log file."""
        self._files = files
        self._directory = directory
        self.identity = identity
        """The partition that is loaded."""
        self._config = config
        self._now_ms = now_ms
        self._log_start_offset, self._recovery_point, self._whole_from, self._high_watermark = checkpoint
        self._indexed_to = NO_INDEX
        """The transaction indexes hold all markers below it; from here on they are rebuilt."""
        self._on_error = on_error
        self._ends_before_point = False
        """The first segment that is checked ends where the recovery point was."""
        self._segments: list[Segment] = []
        self._epochs = LeaderEpochs(files, directory)
        self._producers = ProducerStates(files, directory, producer_expiration_ms)
        self._trail = ProducerTrail()

    def load(self, clean: bool) -> Generator[int, None, Log]:
        """Load the log. `clean`: the folder was closed by a clean stop. Raises OldMessageFormat, KafkaError,
        OSError."""
        sizes, self.unlinkable = tidy_folder(self._files, self._directory)
        self._segments = [
            Segment.open(
                self._files,
                self._directory,
                int(name.removesuffix(LOG_SUFFIX)),
                size_bytes=size_bytes,
                now_ms=self._now_ms,
            )
            for name, size_bytes in sorted(sizes.items())
            if is_segment_name(name)
        ]
        for segment in self._segments:
            if f"{segment.base_offset:020d}{TRANSACTION_INDEX_SUFFIX}" in sizes:
                segment.adopt_transaction_index()
        self._epochs = LeaderEpochs.load(self._files, self._directory)
        self._producers.list_snapshots(sizes)
        if self._whole_from is not None and GAPS_FILE in sizes:
            noted = int(self._files.read_bytes(f"{self._directory}/{GAPS_FILE}"))
            self._whole_from = max(self._whole_from, noted)

        first = len(self._segments) if clean else self._first_unchecked()
        yield from self._rebuild_indexes(first, sizes)
        if not clean:
            yield from self._check_from(first)
        log_end_offset = self._find_end_offset()
        if not self._epochs.intact:
            yield from self._read_epochs()
        self._epochs.truncate_from_end(log_end_offset, loading=True)
        self._epochs.truncate_from_start(self._log_start_offset)
        # A closed log without a single snapshot was closed by a Kafka that did not know of producers yet.
        if not clean or self._producers.snapshot_offsets:
            yield from self._load_producers(log_end_offset)
        # An empty log needs no snapshot.
        if not clean and (log_end_offset > self._log_start_offset or self._producers.entries):
            try:
                self._producers.take_snapshot(log_end_offset)
            except OSError as error:
                if not is_full(error):  # a snapshot only makes the next start faster
                    raise
        log = Log.open(
            self._directory,
            self.identity,
            self._config,
            self._files,
            now_ms=self._now_ms,
            log_start_offset=self._log_start_offset,
            recovery_point=log_end_offset if clean else min(self._recovery_point, log_end_offset),
            loaded=LoadedParts(self._segments, self._producers, self._epochs),
            on_error=self._on_error,
        )
        if not clean:
            # The batches that were written before the crash can be read, but may not be on the disk yet.
            log.names_changed()
            self._epochs.distrust_file()
            self._producers.distrust_snapshots(self._recovery_point)
        return log

    # Segments

    def _first_unchecked(self) -> int:
        """Return the index of the segment that holds the recovery point."""
        if not self._segments:
            return 0
        last = self._segments[-1]
        last.create_missing_indexes()
        self._indexed_to = self._recovery_point
        if last.base_offset < self._recovery_point and last.read_next_offset()[0] < self._recovery_point:
            # A recovery point beyond the end is obsolete, from before a truncation or of the log of a deleted topic:
            # the batches below it may never have been synced.
            self._recovery_point = self._indexed_to = 0
        elif any(segment.base_offset == self._recovery_point > 0 for segment in self._segments):
            # That segment may have begun after the last flush: then the last entry of the time index of the segment
            # before it is not synced.
            self._ends_before_point = True
            self._recovery_point -= 1
        return max(0, sum(segment.base_offset <= self._recovery_point for segment in self._segments) - 1)

    def _rebuild_indexes(self, count: int, sizes: dict[str, int]) -> Steps:
        """Rebuild the indexes of the first segments where one is missing or its size is wrong. Only sizes are checked,
        except for the last segment: its index decides where the log ends."""
        for segment in self._segments[:count]:
            name = f"{segment.base_offset:020d}"
            sound = (
                sizes.get(name + INDEX_SUFFIX, -1) % OffsetIndex.ENTRY_BYTES == 0
                and sizes.get(name + TIME_INDEX_SUFFIX, -1) % TimeIndex.ENTRY_BYTES == 0
                and (segment is not self._segments[-1] or _last_entry_is_sound(segment))
            )
            if not sound:
                _log.warning("%s: an index is missing or broken and is rebuilt", segment.log.path)
                yield from self._check(segment, 0, ProducerTrail(), [])

    def _check_from(self, first: int) -> Steps:
        """Check the segments from this one on; the first invalid batch, and all behind it, is removed."""
        if first == 0 and self._segments and self._recovery_point <= self._segments[0].base_offset:
            self._epochs.cover_all_batches()  # they are read here, and need not be read once more
        trusted = [entry for entry in self._epochs.entries() if entry[1] < self._recovery_point]
        epochs = trusted[-1:]
        next_offset = 0
        for index in range(first, len(self._segments)):
            segment = self._segments[index]
            if segment.base_offset < next_offset:
                _log.warning("%s lies inside the segment before it", segment.log.path)
                self._drop_segments(index)
                break
            if index > first + self._ends_before_point and segment.base_offset > next_offset:
                ends = self._ends_at_gap(next_offset)
                # A power cut has removed the end of a segment (gaps of compaction lie below the recovery point).
                # Snapshots from behind it include batches that are lost, and would make a repetition a duplicate.
                self._producers.delete_snapshots_above(next_offset)
                if ends:
                    _log.warning("%s: nothing from offset %d on: the log ends there", segment.log.path, next_offset)
                    self._drop_segments(index)
                    break
            file_bytes = segment.size_bytes
            end, next_offset = yield from self._check(segment, self._recovery_point, self._trail, epochs)
            if end < file_bytes:
                _log.warning(
                    "%s: no valid batch at position %d: truncating %d bytes, the log ends with offset %d",
                    segment.log.path, end, file_bytes - end, next_offset,
                )  # fmt: skip
                # In this order: if the file were truncated first, a crash would leave a valid segment with a gap
                # behind it.
                self._drop_segments(index + 1)
                segment.truncate_to(end, next_offset)
                break
        if self._epochs.intact:
            found = epochs[len(trusted[-1:]) :]
            if self._epochs.entries() != trusted + found:
                # A crash between the two leaves epochs that the next start finds again.
                self._epochs.truncate_from_end(self._recovery_point, loading=True)
                self._epochs.assign_many(found)

    def _ends_at_gap(self, offset: int) -> bool:
        """Return whether the log ends at a gap between two segments that begins at this offset.

        Not if Apache Kafka was the last to write the log: a segment of its followers begins with the first batch that
        the leader's compaction has left, wherever the one before it ends. If it was killed, the indexes of the last
        segment are preallocated still. If it was killed after it had closed this log, there is a snapshot at the end,
        and all was synced before. Both signs are gone once this broker has appended: what was found is noted.
        """
        if self._whole_from is None or offset < self._whole_from:
            return False
        last = self._segments[-1]
        end_offset = last.read_next_offset()[0]
        was_closed = self._producers.snapshot_offsets[-1:] == [end_offset] and end_offset > last.base_offset
        if not last.indexes_are_preallocated and not was_closed:
            return True
        self._whole_from = end_offset
        self._files.write_atomically(f"{self._directory}/{GAPS_FILE}", b"%d\n" % end_offset)
        return False

    def _check(
        self, segment: Segment, from_offset: int, trail: ProducerTrail, epochs: list[tuple[int, int]]
    ) -> Generator[int, None, tuple[int, int]]:
        steps = check_segment(
            segment, from_offset, index_interval_bytes=self._config.index_interval_bytes, producers=trail, epochs=epochs
        )
        reached = 0
        while True:
            try:
                scan = next(steps)
            except StopIteration as finished:
                checked = finished.value
                yield segment.size_bytes - reached
                return checked.end_position, checked.next_offset
            done, reached = scan.position - reached, scan.position
            self.scanned_path, self.scan = segment.log.path, scan
            yield done
            self.scan = None

    def _drop_segments(self, kept: int) -> None:
        if len(self._segments) > kept:
            # Their snapshots include batches that are removed.
            self._producers.delete_snapshots_above(self._segments[kept].base_offset - 1)
            for segment in self._segments[kept:]:
                self.unlinkable += segment.mark_deleted()
            del self._segments[kept:]
            # At once: a segment that reappeared after a crash of the machine would lie among newer ones.
            self._files.sync_directory(self._directory)

    def _find_end_offset(self) -> int:
        """Return the log end offset. A log that ends before its start offset lost its files: it is emptied."""
        if self._segments:
            active = self._segments[-1]
            log_end_offset = active.read_next_offset()[0]
            if active.size_bytes:  # loads the page that the first append would wait for
                active.log.read(1, active.size_bytes - 1)
            if log_end_offset >= self._log_start_offset:
                self._log_start_offset = max(self._log_start_offset, self._segments[0].base_offset)
                return log_end_offset
            _log.warning(
                "%s ends with offset %d, before its log start offset %d: removing its segments",
                self._directory, log_end_offset, self._log_start_offset,
            )  # fmt: skip
            self._drop_segments(0)
            self._epochs.clear()
        return self._log_start_offset

    # Epochs and producers

    def _read_epochs(self) -> Steps:
        """Read the epochs from the batches, as the checkpoint was unreadable."""
        found: list[tuple[int, int]] = []
        for segment in self._segments:
            for count, batch in enumerate(segment.scan(verify_crc=False), start=1):
                if batch.leader_epoch > (found[-1][0] if found else -1):
                    found.append((batch.leader_epoch, batch.base_offset))
                if count % BATCHES_PER_STEP == 0:
                    yield 0
        self._epochs.assign_many(found)

    def _load_producers(self, log_end_offset: int) -> Steps:
        """Load the newest snapshot, then replay the batches behind it: below the offset where checking began by their
        headers, from there on by those that the check has kept."""
        self._producers.remove_stray_snapshots(segment.base_offset for segment in self._segments)
        from_offset = self._producers.load(self._log_start_offset, log_end_offset)
        trail, segments, high_watermark = self._trail, self._segments, self._high_watermark
        if self._indexed_to < NO_INDEX:
            for segment in segments:
                if segment.transaction_index is not None:
                    segment.transaction_index.truncate_to(self._indexed_to)
        if trail.has_transactions and segments:
            index_from = self._indexed_to
            if from_offset > index_from:
                yield from self._rebuild_transaction_indexes(from_offset)
                index_from = from_offset
            yield from replay_batches(
                self._producers, segments, from_offset, log_end_offset, high_watermark, index_from
            )
            return
        kept_from = log_end_offset if trail.from_offset is None else trail.from_offset
        yield from replay_batches(self._producers, segments, from_offset, kept_from, high_watermark)
        for batch in trail.batches(from_offset):
            self._producers.replay(batch)

    def _rebuild_transaction_indexes(self, end_offset: int) -> Steps:
        """Rebuild the transaction indexes up to `end_offset`, from an earlier snapshot than that of the producers."""
        producers = ProducerStates(self._files, self._directory, self._producers.expiration_ms)
        producers.snapshot_offsets = self._producers.snapshot_offsets
        from_offset = producers.load_earlier(max(self._indexed_to, self._segments[0].base_offset))
        yield from replay_batches(producers, self._segments, from_offset, end_offset, NO_INDEX, self._indexed_to)


def is_segment_name(name: str) -> bool:
    """Return whether a file in the folder of a partition holds record batches."""
    stem = name.removesuffix(LOG_SUFFIX)
    return len(stem) == 20 and len(name) == 24 and stem.isascii() and stem.isdigit()


def unchecked_bytes(files: Files, directory: str, recovery_point: int) -> int:
    """Estimate the bytes that `FolderLoader.load` checks after a crash: an upper bound, by a listing of the folder."""
    total, below = 0, -1
    below_bytes = 0
    for name, _, size_bytes in files.list_directory(directory):
        if is_segment_name(name):
            base_offset = int(name[:20])
            if base_offset > recovery_point:
                total += size_bytes
            elif base_offset > below:
                below, below_bytes = base_offset, size_bytes
    return total + below_bytes


def _last_entry_is_sound(segment: Segment) -> bool:
    offset, position = segment.offset_index.last()
    if not position:
        return True
    header = segment.log.read(HEADER_BYTES, position)
    if len(header) < HEADER_BYTES:
        return False
    return header[MAGIC_POSITION] == 2 and BatchHeader.read(header).last_offset == offset
