"""One segment of a log: a .log file of record batches, and its indexes. This module uses files and offsets only.

The files of a segment are named by its base offset, a lower bound of the offsets in it, in 20 digits. Index entries are
added by Kafka's rule (LogSegment): before a batch is appended, if more than index.interval.bytes were appended since
the last entry, the offset index gets (last offset, position) of that batch, and the time index the largest timestamp so
far with the last offset of the batch that has it. When a segment stops being the active one, the time index gets a last
entry in any case.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.storage.fs.disk_errors import is_full
from gregor.storage.fs.preallocation import PIECE_BYTES
from gregor.storage.segment.batches import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAX_RELATIVE_OFFSET,
    NO_TIMESTAMP,
    OFFSETS,
    BatchHeader,
    BatchWalk,
)
from gregor.storage.segment.index import OffsetIndex, TimeIndex
from gregor.storage.segment.transaction_index import AbortedTransaction, TransactionIndex

if TYPE_CHECKING:
    from gregor.storage.fs.files import File, Files

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"

SCAN_BYTES = 1024 * 1024
HEADERS_BYTES = 64 * 1024
LOCATE_BYTES = 8192
"""A window that holds the batches between two index entries of the default interval, and most of another batch."""

_NOT_LOADED = -2


class OldMessageFormat(ValueError):
    """A segment holds messages of the formats before record batches (magic 0 and 1), written by an old Kafka."""


def make_empty_files(files: Files, directory: str, base_offset: int) -> None:
    """Make the files of an empty segment. May be called on any thread. Raises OSError."""
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        files.write_atomically(file_stem(directory, base_offset) + suffix, b"", sync=False)


def file_stem(directory: str, offset: int) -> str:
    """Return the path of a segment's files (or of a producer snapshot) without the suffix."""
    return f"{directory}/{offset:020d}"


class Segment:
    """`activate` must make a segment ready before appends. Of other segments only the size of the .log file is known;
    the rest is read when it is needed."""

    __slots__ = (
        "_files",
        "_first_timestamp",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "log",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "reserved_bytes",
        "roll_jitter_ms",
        "size_bytes",
        "stem",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        *,
        create: bool,
        size_bytes: int,
        now_ms: int,
        are_there: bool = False,
        roll_jitter_ms: int = 0,
        suffix: str = "",
    ) -> None:
        self._files = files
        self.base_offset = base_offset
        self.stem = stem = file_stem(directory, base_offset)
        makes = create and not are_there
        log_path = stem + LOG_SUFFIX + suffix
        self.log: File = files.create(log_path) if makes else files.open(log_path)
        indexes = {"create": create, "is_there": are_there}
        self.offset_index = OffsetIndex(files, stem + INDEX_SUFFIX + suffix, base_offset, **indexes)
        self.time_index = TimeIndex(files, stem + TIME_INDEX_SUFFIX + suffix, base_offset, **indexes)
        self.transaction_index: TransactionIndex | None = None
        """None where no file of that name exists: no transaction was aborted in the segment."""
        self.size_bytes = size_bytes
        self.bytes_since_index_entry = 0
        self.created_ms = now_ms
        self.roll_jitter_ms = roll_jitter_ms
        """By this much earlier it is rolled than by segment.ms alone (segment.jitter.ms)."""
        self.reserved_bytes = 0
        """Up to this position of the .log file room on the disk was reserved in advance."""
        self.max_timestamp = NO_TIMESTAMP if create else _NOT_LOADED
        """Largest timestamp of its batches. Right only after `activate` or `load_timestamps`."""
        self.max_timestamp_offset = base_offset
        """Last offset of the first batch that has it."""
        self._first_timestamp = _NOT_LOADED

    @classmethod
    def create(
        cls,
        files: Files,
        directory: str,
        base_offset: int,
        *,
        now_ms: int,
        are_there: bool = False,
        roll_jitter_ms: int = 0,
    ) -> Segment:
        """Create an empty segment, ready for appends; files that a crash left under its name are emptied. Creates all
        files or none: after a restart a stray one would become the active segment. `are_there`: its empty files were
        made in advance, by `make_empty_files`."""
        try:
            return cls(
                files,
                directory,
                base_offset,
                create=True,
                size_bytes=0,
                now_ms=now_ms,
                are_there=are_there,
                roll_jitter_ms=roll_jitter_ms,
            )
        except OSError:
            for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                files.unlink(file_stem(directory, base_offset) + suffix)
            raise

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        base_offset: int,
        *,
        size_bytes: int | None = None,
        now_ms: int = 0,
        suffix: str = "",
    ) -> Segment:
        """Open a segment that exists. No file is read, and with `size_bytes` (of the .log file) no system call made.
        `suffix`: of the names of its files, behind their usual one."""
        segment = cls(
            files, directory, base_offset, create=False, size_bytes=size_bytes or 0, now_ms=now_ms, suffix=suffix
        )
        if size_bytes is None:
            segment.size_bytes = segment.log.size_bytes()
        return segment

    def __repr__(self) -> str:
        return f"Segment({self.stem!r}, {self.size_bytes} bytes)"

    # Contents

    @property
    def first_timestamp(self) -> int:
        """Max timestamp of its first batch, which decides when the segment is old enough to roll; -1 if empty."""
        return self.read_first_timestamp(True)

    def begin_with(self, timestamp: int) -> None:
        """Note the largest timestamp of the batch that is about to be the first one."""
        self._first_timestamp = timestamp

    def checked(self, max_timestamp: int, max_timestamp_offset: int, bytes_since_index_entry: int) -> None:
        """Note the state that follows from all batches, which a check has read."""
        self.max_timestamp, self.max_timestamp_offset = max_timestamp, max_timestamp_offset
        self.bytes_since_index_entry = bytes_since_index_entry

    def continue_as(self, source: Segment) -> None:
        """Become the copy of a segment that was appended to: its age counts, and the state that no file has."""
        self.created_ms, self.roll_jitter_ms = source.created_ms, source.roll_jitter_ms
        # The time index of the active segment does not cover all of it.
        self.max_timestamp, self.max_timestamp_offset = source.max_timestamp, source.max_timestamp_offset
        if source.transaction_index is not None:
            self.adopt_transaction_index()

    def read_first_timestamp(self, waits_for_disk: bool) -> int:
        """Return `first_timestamp`; NotCached if it is on the disk only and `waits_for_disk` is False."""
        if self._first_timestamp == _NOT_LOADED:
            header = self.log.read(HEADER_BYTES, 0, waits_for_disk) if self.size_bytes else b""
            if len(header) < HEADER_BYTES:
                return NO_TIMESTAMP  # not stored: the first append sets it
            self._first_timestamp = BatchHeader.read(header).max_timestamp
        return self._first_timestamp

    @property
    def largest_timestamp_ms(self) -> int:
        """Largest timestamp of its records; the modification time of the file when they carry none."""
        return self.read_largest_timestamp_ms(True)

    def read_largest_timestamp_ms(self, waits_for_disk: bool) -> int:
        """Return `largest_timestamp_ms`; NotCached if it is on the disk only and `waits_for_disk` is False."""
        self.load_timestamps(waits_for_disk)
        return self.max_timestamp if self.max_timestamp >= 0 else self.log.modified_ms()

    def load_timestamps(self, waits_for_disk: bool = True) -> None:
        """Load `max_timestamp`. A segment that was closed or recovered has it in its last time index entry."""
        if self.max_timestamp == _NOT_LOADED:
            self.max_timestamp, self.max_timestamp_offset = self.time_index.last(waits_for_disk)

    def locate(self, offset: int, waits_for_disk: bool = True) -> tuple[int, int, int, int] | None:
        """Return (position, size in bytes, base offset, last offset) of the first batch that reaches up to `offset` or
        beyond it.

        None when all batches lie below it. Reads a window of the file or two, or raises NotCached.
        """
        indexed_offset, position, following = self.offset_index.lookup_with_next(offset, waits_for_disk)
        end = self.size_bytes
        if following - position > LOCATE_BYTES and offset > indexed_offset and following + HEADER_BYTES <= end:
            # Batches are so large that each has an entry, and the one before the offset need not be read.
            header = self.log.read(HEADER_BYTES, following, waits_for_disk)
            if len(header) == HEADER_BYTES:
                base_offset, length, _, magic, _, _, delta = OFFSETS.unpack_from(header)
                if magic == 2 and length >= _MIN_LENGTH and base_offset <= offset <= base_offset + delta:
                    return following, length + LENGTH_OVERHEAD, base_offset, base_offset + delta
        while position + HEADER_BYTES <= end:
            window = self.log.read(LOCATE_BYTES, position, waits_for_disk)
            at, limit = 0, len(window) - HEADER_BYTES
            while at <= limit:
                base_offset, length, _, magic, _, _, delta = OFFSETS.unpack_from(window, at)
                if magic != 2 or length < _MIN_LENGTH:
                    raise KafkaError(
                        ErrorCode.KAFKA_STORAGE_ERROR, f"{self.log.path}: no record batch at position {position + at}"
                    )
                if base_offset + delta >= offset:
                    return position + at, length + LENGTH_OVERHEAD, base_offset, base_offset + delta
                at += length + LENGTH_OVERHEAD
            if limit < 0:
                break
            position += at
        return None

    def scan(self, position: int = 0, verify_crc: bool = True, waits_for_disk: bool = True) -> Iterator[BatchHeader]:
        """Yield the batches from `position` (where one must begin) to the end of the segment, or to the first one that
        is torn, has a wrong checksum (if that is checked), or has offsets that go back or exceed those of a segment.
        The reason is not returned: compare position + size of the last batch with `size_bytes`. Raises
        OldMessageFormat.
        """
        walk = self.walk(position, checks_crc=verify_crc, is_whole=verify_crc, waits_for_disk=waits_for_disk)
        yield from walk
        if walk.defect is not None:
            self.refuse_old_format(walk.position, waits_for_disk)

    def walk(
        self, position: int = 0, *, checks_crc: bool = True, is_whole: bool = True, waits_for_disk: bool = True
    ) -> BatchWalk:
        """Do as `scan`; the walk names the defect that has ended it."""
        return BatchWalk(
            self.log.read if waits_for_disk else partial(self.log.read, waits_for_disk=False),
            position,
            self.size_bytes,
            next_offset=self.base_offset,
            highest_offset=self.base_offset + MAX_RELATIVE_OFFSET,
            checks_crc=checks_crc,
            is_whole=is_whole,
            window_bytes=SCAN_BYTES if is_whole else HEADERS_BYTES,
        )

    def read_next_offset(self) -> tuple[int, int]:
        """Return (next offset, end position) of the next batch. Reads headers only, from the last index entry on. The
        end position lies below `size_bytes` when bytes that are no batch follow."""
        next_offset, end = self.base_offset, 0
        if self.size_bytes:
            end = self.offset_index.last()[1]
            for batch in self.scan(end, verify_crc=False):
                next_offset, end = batch.last_offset + 1, batch.position + batch.size_bytes
        return next_offset, end

    # Appends. The Appender writes the .log file itself (one system call, no frame in between) and sets the counters.

    def activate(self) -> None:
        """Make an opened segment ready for appends."""
        self.load_timestamps()
        self.offset_index.prepare_appends()
        self.time_index.prepare_appends()
        self.bytes_since_index_entry = self.size_bytes - self.offset_index.last()[1]
        if self.transaction_index is not None:
            self.transaction_index.prepare_appends()

    def append_index_entries(self, last_offset: int, position: int) -> None:
        """Append entries for a batch that was just written; `max_timestamp` must include the batch already."""
        self.offset_index.append(last_offset, position)
        self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)

    def append_aborted(self, transaction: AbortedTransaction) -> None:
        """Add a transaction whose abort marker was just appended. After an OSError `truncate_to` removes what was
        written of it."""
        if self.transaction_index is None:
            self.transaction_index = self.open_transaction_index(create=True)
        self.transaction_index.append(transaction)

    def reserve_room(self, size_bytes: int, segment_bytes: int) -> None:
        """Reserve room on the disk for a batch of that size and those after it, up to `segment_bytes`. A full disk is
        no error: the segment is then appended to without a reserve."""
        end = self.size_bytes + size_bytes
        if end > self.reserved_bytes:
            start = max(self.size_bytes, self.reserved_bytes)
            wanted = max(end, min(segment_bytes, start + PIECE_BYTES))
            self.reserved_bytes = wanted if self.log.reserve(start, wanted - start) else max(end, segment_bytes)

    def become_inactive(self) -> None:
        """Add the last entry of the time index, complete the index files, and free reserved room. Has no effect when it
        is called again."""
        if self.reserved_bytes:
            self.log.truncate(self.size_bytes)
            self.reserved_bytes = 0
        if self.max_timestamp >= 0:
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        self.write_indexes()

    def write_indexes(self) -> None:
        """Write the pending entries of both indexes."""
        self.offset_index.write_pending()
        self.time_index.write_pending()

    def truncate_to(self, position: int, next_offset: int | None = None) -> None:
        """Truncate the .log file to a position, and the indexes with it. The segment is ready for appends then. With
        `next_offset`, the offset after the last batch that is kept, nothing is read for it."""
        self.log.truncate(position)
        self.size_bytes = position
        self.offset_index.truncate_entries(self.offset_index.entries_below_position(position))
        if next_offset is None:
            next_offset = self.read_next_offset()[0]
        self.time_index.truncate_entries(self.time_index.entries_below_offset(next_offset))
        if self.transaction_index is not None:
            self.transaction_index.truncate_to(next_offset)
        self.bytes_since_index_entry = position - self.offset_index.last()[1]
        if position == 0:
            self._first_timestamp = _NOT_LOADED
        self._reload_max_timestamp()

    @property
    def indexes_are_preallocated(self) -> bool:
        """Whether the indexes are longer than their entries, as those of Apache Kafka's active segment."""
        return self.offset_index.is_preallocated or self.time_index.is_preallocated

    # Files

    def files(self) -> tuple[File, File, File]:
        return self.log, self.offset_index.file, self.time_index.file

    def synced_files(self) -> list[File]:
        """Return all files of the segment that a sync must include."""
        index = self.transaction_index
        return [*self.files(), index.file] if index is not None else [*self.files()]

    def open_transaction_index(self, *, create: bool = False) -> TransactionIndex:
        return TransactionIndex(self._files, self.stem + TRANSACTION_INDEX_SUFFIX, create=create)

    def adopt_transaction_index(self) -> None:
        """Note that the segment has a .txnindex file."""
        self.transaction_index = self.open_transaction_index()

    def create_missing_indexes(self) -> None:
        """Create empty ones, which `check_segment` then fills."""
        if not self._files.exists(self.offset_index.file.path):
            self.offset_index = OffsetIndex(self._files, self.stem + INDEX_SUFFIX, self.base_offset, create=True)
        if not self._files.exists(self.time_index.file.path):
            self.time_index = TimeIndex(self._files, self.stem + TIME_INDEX_SUFFIX, self.base_offset, create=True)

    def mark_deleted(self) -> list[str]:
        """Rename its files to *.deleted and return their new paths, which the caller unlinks. Files that are held open
        can still be read. On a full disk without room for longer names they are unlinked here. After an error it can be
        called again."""
        paths: list[str] = []

        def rename(path: str, by: Callable[[str], None]) -> None:
            if path.endswith(DELETED_SUFFIX):  # renamed by an earlier call
                paths.append(path)
            elif self._files.exists(path):
                try:
                    deleted = self._deleted_path(path)
                    by(deleted)
                    paths.append(deleted)
                except OSError as error:
                    if not is_full(error):
                        raise
                    self._files.unlink(path)

        for file in self.files():
            rename(file.path, file.rename)
        index = self.transaction_index
        if index is None:
            path = self.stem + TRANSACTION_INDEX_SUFFIX
            rename(path, partial(self._files.rename, path))
        else:
            rename(index.file.path, index.file.rename)
        self.close()
        return paths

    def _deleted_path(self, path: str) -> str:
        """Return a path that no other deleted segment of this offset has: otherwise one of the two would be unlinked
        too early."""
        deleted, number = path + DELETED_SUFFIX, 0
        while self._files.exists(deleted):
            number += 1
            deleted = f"{self.stem}.{number}{path.removeprefix(self.stem)}{DELETED_SUFFIX}"
        return deleted

    def close(self) -> None:
        """Close descriptors and free memory. The segment stays usable."""
        self.log.close()
        self.offset_index.close()
        self.time_index.close()
        if self.transaction_index is not None:
            self.transaction_index.close()

    def _reload_max_timestamp(self) -> None:
        # The batches behind the last time entry may be later than it.
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last()
        start = self.offset_index.lookup(self.max_timestamp_offset)[1]
        for batch in self.scan(start, verify_crc=False):
            if batch.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = batch.max_timestamp, batch.last_offset

    def refuse_old_format(self, position: int, waits_for_disk: bool = True) -> None:
        """Raise OldMessageFormat if a whole message of magic 0 or 1 begins there: such a log must not be treated as a
        torn one. (Both begin with offset int64, size int32, crc-32 of the rest, magic.)"""
        prefix = self.log.read(HEADER_BYTES, position, waits_for_disk)
        if len(prefix) >= 17 and prefix[16] < 2:
            size_bytes = int.from_bytes(prefix[8:12])
            if 14 <= size_bytes <= self.size_bytes - position - LENGTH_OVERHEAD:
                message = self.log.read(size_bytes, position + LENGTH_OVERHEAD, waits_for_disk)
                if binascii.crc32(message[4:]) == int.from_bytes(message[:4]):
                    raise OldMessageFormat(f"{self.log.path} holds messages of format {prefix[16]} at {position}")


_MIN_LENGTH = HEADER_BYTES - LENGTH_OVERHEAD
