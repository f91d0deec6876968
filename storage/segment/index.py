"""The two sparse indexes of a segment. They only save scanning: everything in them can be rebuilt from the .log file.

    .index      8 bytes an entry: relative offset int32, position int32
    .timeindex 12 bytes an entry: timestamp int64, relative offset int32

Big-endian, in ascending order of both columns, offsets relative to the segment's base offset. An offset entry holds
the last offset of a batch and the position where that batch begins. A time entry (t, o) means that no record up to
offset o is later than t; o is the last offset of the first batch that reached t. (Kafka's OffsetIndex and TimeIndex.)

New entries wait in memory and are written to the file together (`write_pending`): with batches of 16 KB a write for
each would be two thirds of the system calls of an append. Entries that a crash loses are rebuilt from the .log file:
entries above the recovery point are never trusted, and below it, and in all segments but the active one, they are in
the file.

The number of entries is known without reading the file. A small index is read whole at the first lookup, kept up to
date by appends, and dropped again when the cache wants the memory. A large one (its log holds more than some 30 MB) is
searched in the file: that costs a dozen reads of a cached page, and no memory. Where the lookups of an offset index
advance, as those of a consumer do, the next entries are kept, so that most of its lookups read nothing.

Apache Kafka preallocates the indexes of its active segment: after it crashed they end in zeros, which are no entries.
"""

from __future__ import annotations

import errno
import sys
from array import array
from bisect import bisect_right
from struct import Struct
from typing import TYPE_CHECKING

from gregor.storage.fs.disk_errors import NOT_OPENED
from gregor.storage.segment.batches import NO_TIMESTAMP

if TYPE_CHECKING:
    from gregor.storage.fs.files import File, Files


LOADED_BYTES = 64 * 1024
"""Larger indexes are not read whole."""

PAGE_ENTRIES = 256

KEPT_ENTRIES = 2048
"""Of a large offset index, from the last lookup on: those of some 32 MB in batches of 16 KB."""

PENDING_BYTES = 1024
"""New entries are written when they reach this size."""


class SparseIndex:
    """The base of both indexes: sorted fixed-size entries, searched by one column.

    Abstract: subclasses set ENTRY and define the meaning of entries.
    """

    ENTRY = Struct("")
    ENTRY_BYTES = 0

    __slots__ = ("_cache", "_content", "_entries", "_file", "_pending", "base_offset")

    def __init__(
        self, files: Files, path: str, base_offset: int, *, create: bool = False, is_there: bool = False
    ) -> None:
        """`is_there`: the file that `create` would make exists, and is empty."""
        self.base_offset = base_offset
        self._file: File = files.create(path) if create and not is_there else files.open(path)
        self._cache = files.cache
        self._content: bytearray | None
        self._drop()
        self._pending = b""  # the last entries, as they will be in the file
        self._entries = -1  # unknown until it is first needed
        if create:
            self._set_entries(0)

    @property
    def file(self) -> File:
        return self._file

    @property
    def pending(self) -> bytes:
        """The last entries, as long as they are not in the file."""
        return self._pending

    @property
    def written_bytes(self) -> int:
        """Of the entries that are in the file."""
        return self.entries * self.ENTRY_BYTES - len(self._pending)

    @property
    def is_preallocated(self) -> bool:
        """Whether the file is longer than its entries."""
        return self._file.size_bytes() >= (self.entries + 1) * self.ENTRY_BYTES

    @property
    def entries(self) -> int:
        return self._entries if self._entries >= 0 else self._load_length()

    def entry(self, slot: int) -> tuple[int, int]:
        """Return the two columns of an entry as they are in the file; IndexError when there is none."""
        if not 0 <= slot < self.entries:
            raise IndexError(f"{self._file.path} has {self.entries} entries, no {slot}")
        return self._entry(slot)

    def truncate_entries(self, entries: int) -> None:
        """Keep the first `entries` entries, and leave nothing behind them in the file."""
        written = self.entries * self.ENTRY_BYTES - len(self._pending)
        size_bytes = entries * self.ENTRY_BYTES
        kept_bytes = min(size_bytes, written)
        if self._file.size_bytes() != kept_bytes:  # else no descriptor is needed
            self._file.truncate(kept_bytes)
        self._pending = self._pending[: max(0, size_bytes - written)]
        self._drop()
        self._cache.forget(self)
        self._set_entries(entries)

    def prepare_appends(self) -> None:
        """Truncate the file to its entries. Must be called once before the first append to an old file."""
        if self._file.size_bytes() != self.entries * self.ENTRY_BYTES:
            self.truncate_entries(self._entries)

    def close(self) -> None:
        """Close the descriptor and drop the content; the index stays usable, with its pending entries."""
        self._file.close()
        self._drop()
        self._cache.forget(self)

    def write_pending(self) -> None:
        """Write the pending entries. After an OSError they are still pending, and none of them is in the file."""
        pending = self._pending
        if pending:
            if self._file.write(pending) != len(pending):
                self._file.truncate(self._entries * self.ENTRY_BYTES - len(pending))
                raise OSError(errno.ENOSPC, "short write", self._file.path)
            self._pending = b""

    def _append(self, entry: bytes) -> None:
        """Add one entry, or several. After an OSError they are among the pending ones; truncate_entries removes
        them. Where the file cannot be opened for lack of descriptors, the next append writes them: the batch that they
        are of is in the .log file already."""
        self._entries += len(entry) // self.ENTRY_BYTES
        self._pending += entry
        if self._content is not None:
            self._content += entry
        if len(self._pending) >= PENDING_BYTES:
            try:
                self.write_pending()
            except OSError as error:
                if error.errno not in NOT_OPENED:
                    raise

    def _slot_at_most(self, target: int, column: int, waits_for_disk: bool = True) -> int:
        """Return the last slot whose column holds at most `target`; -1 if there is none."""
        low, high = 0, self._entries if self._entries >= 0 else self._load_length(waits_for_disk)
        if not high:
            return -1
        unpack_from, entry_bytes = self.ENTRY.unpack_from, self.ENTRY_BYTES
        content: bytes | bytearray
        if self._content is None and high * entry_bytes > LOADED_BYTES:
            while high - low > PAGE_ENTRIES:
                middle = (low + high) >> 1
                if self._entry(middle, waits_for_disk)[column] <= target:
                    low = middle + 1
                else:
                    high = middle
            first = low
            content = self._read(low, high, waits_for_disk)
        else:
            first = 0
            content = self._loaded(waits_for_disk)
        while low < high:
            middle = (low + high) >> 1
            if unpack_from(content, (middle - first) * entry_bytes)[column] <= target:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _entry(self, slot: int, waits_for_disk: bool = True) -> tuple[int, int]:
        # One entry is not worth loading them all: opening a segment reads its last entries only.
        if self._content is None:
            first, second = self.ENTRY.unpack(self._read(slot, slot + 1, waits_for_disk))
        else:
            first, second = self.ENTRY.unpack_from(self._content, slot * self.ENTRY_BYTES)
        return first, second

    def _read(self, first: int, end: int, waits_for_disk: bool) -> bytes:
        """Return the entries from slot `first` up to slot `end`, from the file and from the pending ones."""
        start, size_bytes = first * self.ENTRY_BYTES, (end - first) * self.ENTRY_BYTES
        written = self._entries * self.ENTRY_BYTES - len(self._pending)
        in_file = min(size_bytes, written - start)
        content = self._file.read(in_file, start, waits_for_disk) if in_file > 0 else b""
        if start + size_bytes > written:
            content += self._pending[max(0, start - written) : start + size_bytes - written]
        if len(content) != size_bytes:
            raise OSError(errno.EIO, "index file became shorter", self._file.path)
        return content

    def _loaded(self, waits_for_disk: bool) -> bytearray:
        if self._content is None:
            self._content = bytearray(self._read(0, self.entries, waits_for_disk))
        self._cache.use(self, len(self._content), self._drop)
        return self._content

    def _drop(self) -> None:
        self._content = None

    def _load_length(self, waits_for_disk: bool = True) -> int:
        count = self._file.size_bytes() // self.ENTRY_BYTES
        if count and not self._is_entry(count - 1, count, waits_for_disk):
            # Entries, then zeros: the border is found by halving.
            low, high = 0, count - 1
            while low < high:
                middle = (low + high) >> 1
                if self._is_entry(middle, count, waits_for_disk):
                    low = middle + 1
                else:
                    high = middle
            count = low
        self._set_entries(count, waits_for_disk)
        return count

    def _is_entry(self, slot: int, slots: int, waits_for_disk: bool) -> bool:
        """Return False for zeros that were never written."""
        raw = self._file.read(self.ENTRY_BYTES, slot * self.ENTRY_BYTES, waits_for_disk)
        return any(raw) or (self._zeros_may_be_an_entry and slots == 1)

    _zeros_may_be_an_entry = False

    def _set_entries(self, entries: int, waits_for_disk: bool = True) -> None:
        self._entries = entries


class OffsetIndex(SparseIndex):
    """Offset to file position. Offsets must be appended in ascending order; this is not checked."""

    ENTRY = Struct(">ii")
    ENTRY_BYTES = 8

    __slots__ = ("_kept", "_last_slot")

    _kept: _Entries | None
    """Some entries of a large index. They stay right until entries are removed: those that follow are only added."""
    _last_slot: int
    """Of the last lookup that was a search in the file."""

    def append(self, offset: int, position: int) -> None:
        self._append(self.ENTRY.pack(offset - self.base_offset, position))

    def append_packed(self, entries: bytearray) -> None:
        """Append many entries in their file form, in one write."""
        if entries:
            self._append(bytes(entries))
            self.write_pending()

    def lookup(self, offset: int, waits_for_disk: bool = True) -> tuple[int, int]:
        """Return the entry with the greatest offset that is at most `offset`, as (offset, position), or (base offset,
        0)."""
        slot = self._slot_at_most(offset - self.base_offset, 0, waits_for_disk)
        return self._at(slot, waits_for_disk)

    def lookup_with_next(self, offset: int, waits_for_disk: bool = True) -> tuple[int, int, int]:
        """Do as `lookup`, and return the position of the entry behind it, too; -1 if there is none, or none before."""
        relative = offset - self.base_offset
        kept = self._kept
        if kept is not None and kept.first <= relative < kept.last:
            at = bisect_right(kept.offsets, relative)
            return self.base_offset + kept.offsets[at - 1], kept.positions[at - 1], kept.positions[at]
        slot = self._slot_at_most(relative, 0, waits_for_disk)
        if slot < 0 or slot + 1 >= self._entries:
            return (*self._at(slot, waits_for_disk), -1)
        if self._content is not None:
            found, position, _, following = _TWO_ENTRIES.unpack_from(self._content, slot * self.ENTRY_BYTES)
        else:
            advances = slot - self._last_slot
            self._last_slot = slot
            count = min(KEPT_ENTRIES, self._entries - slot) if 0 < advances < 2 * KEPT_ENTRIES else 2
            content = self._read(slot, slot + count, waits_for_disk)
            if count > 2:
                self._kept = _Entries(content)
                self._cache.use(self, len(content), self._drop)
            found, position, _, following = _TWO_ENTRIES.unpack_from(content)
        return self.base_offset + found, position, following

    def last(self) -> tuple[int, int]:
        """Return the last entry as (offset, position); (base offset, 0) of an empty index."""
        return self._at(self.entries - 1, True)

    def entries_below_position(self, position: int, waits_for_disk: bool = True) -> int:
        """Count the entries that point below `position` (the first ones)."""
        return self._slot_at_most(position - 1, 1, waits_for_disk) + 1

    def offset_of(self, slot: int, waits_for_disk: bool = True) -> int:
        """Return the offset of an entry."""
        return self._at(slot, waits_for_disk)[0]

    def _at(self, slot: int, waits_for_disk: bool) -> tuple[int, int]:
        if slot < 0:
            return self.base_offset, 0
        relative, position = self._entry(slot, waits_for_disk)
        return self.base_offset + relative, position

    def _drop(self) -> None:
        self._content = self._kept = None
        self._last_slot = _NO_SLOT


_TWO_ENTRIES = Struct(">iiii")
_NO_SLOT = sys.maxsize
"""Behind every entry: no lookup advances from it."""


class _Entries:
    """Successive entries of an offset index, in columns of the machine's byte order."""

    __slots__ = ("first", "last", "offsets", "positions")

    def __init__(self, content: bytes) -> None:
        columns = array("i", content)
        if sys.byteorder == "little":
            columns.byteswap()
        self.offsets = columns[::2]
        self.positions = columns[1::2]
        self.first, self.last = self.offsets[0], self.offsets[-1]


class TimeIndex(SparseIndex):
    """Timestamp to offset. The timestamps ascend strictly, the offsets weakly."""

    ENTRY = Struct(">qi")
    ENTRY_BYTES = 12

    __slots__ = ("_last_timestamp",)

    # A segment whose only record has time 0 at the base offset has an index with one entry of zeros.
    _zeros_may_be_an_entry = True

    @property
    def last_timestamp(self) -> int:
        """-1 of an empty index."""
        if self._entries < 0:
            self._load_length()
        return self._last_timestamp

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Append an entry if the timestamp is above that of the last entry."""
        if timestamp > self.last_timestamp:
            self._last_timestamp = timestamp  # also if the append fails: the entry is a pending one then
            self._append(self.ENTRY.pack(timestamp, offset - self.base_offset))

    def append_packed(self, entries: bytearray) -> None:
        """Append many entries in their file form, in one write."""
        if entries:
            self._append(bytes(entries))
            self.write_pending()
            self._last_timestamp = self.ENTRY.unpack_from(entries, len(entries) - self.ENTRY_BYTES)[0]

    def lookup(self, timestamp: int, waits_for_disk: bool = True) -> tuple[int, int]:
        """Return the entry with the greatest timestamp that is at most `timestamp`, as (timestamp, offset), or (-1,
        base offset)."""
        return self._at(self._slot_at_most(timestamp, 0, waits_for_disk), waits_for_disk)

    def last(self, waits_for_disk: bool = True) -> tuple[int, int]:
        """Return the last entry as (timestamp, offset); (-1, base offset) of an empty index."""
        entries = self._entries if self._entries >= 0 else self._load_length(waits_for_disk)
        return self._at(entries - 1, waits_for_disk)

    def entries_below_offset(self, offset: int) -> int:
        """Count the entries with an offset below `offset` (the first ones)."""
        return self._slot_at_most(offset - self.base_offset - 1, 1) + 1

    def _at(self, slot: int, waits_for_disk: bool) -> tuple[int, int]:
        if slot < 0:
            return NO_TIMESTAMP, self.base_offset
        timestamp, relative = self._entry(slot, waits_for_disk)
        return timestamp, self.base_offset + relative

    def _set_entries(self, entries: int, waits_for_disk: bool = True) -> None:
        super()._set_entries(entries)
        try:
            self._last_timestamp = self._at(entries - 1, waits_for_disk)[0]
        except BaseException:  # of the read: the length is determined again at the next use
            self._entries = -1
            raise
