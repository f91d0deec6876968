"""The segment files of one partition, read while its broker may roll, compact or delete them.

Bytes are read by pread: a mapped file that is truncated under its reader would end the process (SIGBUS). An open
segment keeps its content whatever happens to its name: compaction and retention rename and unlink whole files. The list
of the segments may change, so it is read again for each segment. While compaction replaces segments, files
named `.swap` are there from before the old ones are renamed until the new one has its name: a list that has any, or
that differs from one read just before, may lack a segment and is not used.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from gregor.protocol.ids import uuid_to_text
from gregor.storage.segment.batches import HEADER_BYTES, LENGTH_OVERHEAD, LENGTH_POSITION
from gregor.storage.segment.index import OffsetIndex, TimeIndex
from gregor.storage.segment.transaction_index import AbortedTransaction, parse_transaction_index

LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX = ".log", ".index", ".timeindex", ".txnindex"
SWAP_SUFFIX = ".swap"
PARTITION_METADATA = "partition.metadata"

MIN_WINDOW_BYTES = 256 * 1024
MAX_WINDOW_BYTES = 8 * 1024 * 1024
MAX_LISTINGS = 100
"""Two that are equal are found at once, unless the broker renames files at that moment."""


class Unreadable(Exception):
    """The files cannot be read, or no more; the text has the reason. All that was read of them before is right."""


class Identity(NamedTuple):
    """Names one file for as long as it is open."""

    device: int
    inode: int


class Listing(NamedTuple):
    """The segments of a partition, by their base offsets in order."""

    bases: list[int]

    def floor(self, offset: int) -> int | None:
        """Return the base offset of the segment that an offset lies in."""
        slot = bisect_right(self.bases, offset) - 1
        return self.bases[slot] if slot >= 0 else None

    def from_floor(self, offset: int) -> list[int]:
        """Return the base offsets from the segment that an offset lies in on."""
        return self.bases[max(0, bisect_right(self.bases, offset) - 1) :]

    def after(self, base: int) -> int | None:
        slot = bisect_right(self.bases, base)
        return self.bases[slot] if slot < len(self.bases) else None


class PartitionFiles:
    """The folder of one partition. A folder that is renamed, or replaced by another of its name, is Unreadable."""

    def __init__(self, path: str, topic_id: bytes | None = None) -> None:
        self.path = path
        self._topic_id = topic_id
        self._identity = self._identify()

    def listing(self) -> Listing:
        """List the segments. Raises Unreadable."""
        before: set[str] = set()
        for _ in range(MAX_LISTINGS):
            try:
                names = set(os.listdir(self.path))
            except OSError as error:
                raise Unreadable(f"{self.path} cannot be listed: {error.strerror}") from error
            if names == before and not any(name.endswith(SWAP_SUFFIX) for name in names):
                self._check()
                return Listing(sorted(int(name[:20]) for name in names if _is_segment(name)))
            before = names
        raise Unreadable(f"the segments in {self.path} are being replaced; after a crash, start their broker once")

    def segment_at(self, offset: int, exhausted: Identity | None) -> Segment | None:
        """Open the segment that an offset lies in, or the next one if that has been read to its end; None without
        one. Raises Unreadable."""
        for _ in range(MAX_LISTINGS):
            listing = self.listing()
            base = listing.floor(offset)
            if base is None:
                raise Unreadable(f"{self.path} has no segment with offset {offset}: it was deleted")
            try:
                segment = Segment(self.path, base)
                if segment.identity == exhausted:
                    segment.close()
                    following = listing.after(base)
                    return None if following is None else Segment(self.path, following)
                return segment
            except FileNotFoundError:
                continue  # deleted or compacted since it was listed
            except OSError as error:
                raise Unreadable(f"{error.filename or self.path} cannot be read: {error.strerror}") from error
        raise Unreadable(f"the segments in {self.path} are replaced faster than they are read")

    def first_offset_since(self, timestamp_ms: int, start: int, end: int) -> int:
        """Return an offset from `start` on below which no record has this timestamp or a later one, by the time
        indexes. Raises Unreadable."""
        found = start
        for base in self.listing().from_floor(start):
            content = _content(self._stem(base) + TIME_INDEX_SUFFIX)
            if base >= end or not content:
                break  # without entries nothing is known of its timestamps
            index = TimeIndex(cast(Any, _InMemory(content)), "", base)
            reached, offset = index.lookup(timestamp_ms - 1)
            if reached >= 0:
                found = max(found, offset + 1)
            if index.last_timestamp >= timestamp_ms:
                break
        return min(found, end)

    def aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have offsets from `start` on and below `end`. Raises Unreadable."""
        for _ in range(MAX_LISTINGS):
            listing = self.listing()
            found: list[AbortedTransaction] = []
            for base in listing.from_floor(start):
                found += _transactions(self._stem(base) + TRANSACTION_INDEX_SUFFIX)
                if found and found[-1].last_stable_offset >= end:
                    break
            if self.listing() == listing:
                return [one for one in found if one.last_offset >= start and one.first_offset < end]
        raise Unreadable(f"the segments in {self.path} are replaced faster than they are read")

    def _stem(self, base: int) -> str:
        return _stem(self.path, base)

    def _identify(self) -> Identity:
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise Unreadable(f"{self.path} cannot be read: {error.strerror}") from error
        return Identity(found.st_dev, found.st_ino)

    def _check(self) -> None:
        """Check that this is still the folder of the same topic."""
        if self._identify() != self._identity:
            raise Unreadable(f"{self.path} has been replaced by another folder")
        content = _content(os.path.join(self.path, PARTITION_METADATA))
        if content and self._topic_id and any(self._topic_id):
            expected = uuid_to_text(self._topic_id)
            if expected.encode() not in content.split():
                raise Unreadable(f"{self.path} is not of the topic with the id {expected}")


class Segment:
    """An open .log file, with the position where to begin for an offset. A context manager."""

    def __init__(self, directory: str, base: int) -> None:
        """Open it. Raises OSError."""
        self.base_offset = base
        self._stem = _stem(directory, base)
        self._descriptor = os.open(self._stem + LOG_SUFFIX, os.O_RDONLY | os.O_CLOEXEC)
        found = os.fstat(self._descriptor)
        self.identity = Identity(found.st_dev, found.st_ino)

    def position_of(self, offset: int) -> int:
        """Return the position of a batch at or before the one with an offset, by the offset index. It is 0 if the
        index leads to anything but such a batch: an index is no part of what a segment promises. Raises Unreadable."""
        content = _content(self._stem + INDEX_SUFFIX)
        if not content:
            return 0
        _, position = OffsetIndex(cast(Any, _InMemory(content)), "", self.base_offset).lookup(offset)
        head = os.pread(self._descriptor, HEADER_BYTES, position)
        if len(head) < HEADER_BYTES or not self.base_offset <= int.from_bytes(head[:8], signed=True) <= offset:
            return 0
        return position

    def windows(self, position: int) -> Iterator[memoryview]:
        """Read the complete batches from a position on, a window at a time. It ends at the end of the segment, also
        if a broker has reserved space with zeros behind it. Raises Unreadable where no batch begins, or a part of one:
        it is damaged, or being appended. The bytes of a window are right until the next one is read: all windows are
        read into the same memory, because new memory costs more than the bytes do."""
        window_bytes = MIN_WINDOW_BYTES
        memory = bytearray()
        while True:
            if len(memory) < window_bytes:
                memory = bytearray(window_bytes)
            whole = memoryview(memory)
            data = whole[: os.preadv(self._descriptor, [whole[:window_bytes]], position)]
            end, next_bytes = _whole_batches(data)
            if end:
                yield data[:end]
                position += end
                window_bytes = min(max(2 * window_bytes, next_bytes), max(MAX_WINDOW_BYTES, next_bytes))
            elif next_bytes <= len(data) or len(data) < window_bytes:
                if data.tobytes().strip(b"\0"):
                    raise Unreadable(f"{self._stem}{LOG_SUFFIX} has no complete batch at position {position}")
                return
            else:
                window_bytes = next_bytes

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Segment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _whole_batches(data: memoryview) -> tuple[int, int]:
    """Return the end of the last complete batch, and the size of the next one, 0 if none can begin there."""
    position, size = 0, len(data)
    while size - position >= LENGTH_OVERHEAD:
        length = int.from_bytes(data[position + LENGTH_POSITION : position + LENGTH_OVERHEAD], signed=True)
        if length <= 0:
            return position, 0
        if position + LENGTH_OVERHEAD + length > size:
            return position, LENGTH_OVERHEAD + length
        position += LENGTH_OVERHEAD + length
    return position, MIN_WINDOW_BYTES if position else 0


def _is_segment(name: str) -> bool:
    return name.endswith(LOG_SUFFIX) and len(name) == 20 + len(LOG_SUFFIX) and name[:20].isdecimal()


def _stem(directory: str, base: int) -> str:
    return os.path.join(directory, f"{base:020d}")


def _content(path: str) -> bytes:
    """Return the content of a small file; nothing if it does not exist: an index may be missing, and without a
    transaction index a segment has no aborted transactions. Raises Unreadable for a file that cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from error


def _transactions(path: str) -> list[AbortedTransaction]:
    try:
        return parse_transaction_index(_content(path))
    except ValueError as error:
        raise Unreadable(f"{path}: {error}") from error


class _InMemory:
    """The content of an index in the shape of storage's Files and File."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.path = ""
        self.cache = self

    def open(self, path: str) -> _InMemory:
        return self

    def use(self, *_: object) -> None:
        """Keep nothing: the index lives as long as one search."""

    def read(self, size_bytes: int, position: int, waits_for_disk: bool = True) -> bytes:
        return self._content[position : position + size_bytes]

    def size_bytes(self) -> int:
        return len(self._content)
