"""Reading a log: slices of its files for fetches."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.storage.segment.batches import LENGTH_OVERHEAD, OFFSETS

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from gregor.storage.fs.files import File
    from gregor.storage.log.state import LogHealth, LogOffsets, Segments
    from gregor.storage.segment.segment import Segment
    from gregor.storage.segment.transaction_index import AbortedTransaction


class LogSlice:
    """Some bytes of one segment: whole batches, except for the last one, which may be incomplete.

    They stay readable until `release`, whatever happens to the segment meanwhile: deletion, rolling, closing. (Only a
    truncation removes them; then there is less to read.) An empty slice holds nothing.
    """

    __slots__ = ("_file", "active", "first_offset", "position", "size_bytes")

    def __init__(self, file: File | None, position: int, size_bytes: int, first_offset: int, active: bool) -> None:
        self.position = position
        """Of the first byte in the file."""
        self.size_bytes = size_bytes
        self.first_offset = first_offset
        """Base offset of the first batch; of an empty slice the offset that was to be read."""
        self.active = active
        """It lies in the active segment: its bytes are most likely in the page cache."""
        self._file: File | None = None
        if file is not None:
            file.hold()
            self._file = file

    def fileno(self) -> int:
        """Return the descriptor for sendfile and preadv, with `position`. ValueError for an empty or released slice."""
        return self._held().fileno()

    def read(self) -> bytes:
        return self._held().read(self.size_bytes, self.position) if self.size_bytes else b""

    def read_into(self, view: WriteableBuffer) -> int:
        return self._held().read_into(view, self.position) if self.size_bytes else 0

    def release(self) -> None:
        """Release the file; may be called again. A slice that is simply dropped is released, too."""
        file, self._file = self._file, None
        if file is not None:
            file.release()

    def __del__(self) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"LogSlice(offset {self.first_offset}, {self.size_bytes} bytes at {self.position})"

    def _held(self) -> File:
        if self._file is None:
            raise ValueError("nothing is held by this slice")
        return self._file


class Reader:
    """Finds the bytes for fetches."""

    __slots__ = ("_health", "_offsets", "_segments")

    def __init__(self, offsets: LogOffsets, segments: Segments, health: LogHealth) -> None:
        self._offsets = offsets
        self._segments = segments
        self._health = health

    def read(
        self, offset: int, max_bytes: int, upper_offset: int, min_one_batch: bool = True, waits_for_disk: bool = True
    ) -> LogSlice:
        """Return the batch that holds `offset` and what follows it in the same segment, below `upper_offset`.

        At most `max_bytes`, but at least a whole batch with `min_one_batch` (without it, nothing if the first batch
        does not fit). An empty slice means that there is nothing yet. Raises OFFSET_OUT_OF_RANGE outside of the log;
        without `waits_for_disk` also NotCached, where the position of the batch must be read from the disk first.
        """
        offsets, segments = self._offsets, self._segments
        end_offset = offsets.log_end_offset
        if not offsets.log_start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {offsets.log_start_offset} to {end_offset}",
            )
        active = segments.active
        if offset >= upper_offset or offset == end_offset:
            if offset == end_offset:
                segments.remember(offset, active.size_bytes)
            return LogSlice(None, 0, 0, offset, True)
        try:
            if offset >= active.base_offset:
                return self._read_segment(active, True, offset, max_bytes, upper_offset, min_one_batch, waits_for_disk)
            for index in range(segments.index_of(offset), len(segments.items)):
                # A later segment only if the offset lies in a gap at the end of its own (compaction made it).
                segment = segments.items[index]
                found = segment.locate(offset, waits_for_disk) if segment.size_bytes else None
                if found is not None:
                    break
            else:
                return LogSlice(None, 0, 0, offset, True)
            return self._read_segment(
                segment, segment is active, offset, max_bytes, upper_offset, min_one_batch, waits_for_disk, found
            )
        except OSError as error:
            self._health.fail(error, "cannot read")

    def _read_segment(
        self,
        segment: Segment,
        active: bool,
        offset: int,
        max_bytes: int,
        upper_offset: int,
        min_one_batch: bool,
        waits_for_disk: bool,
        found: tuple[int, int, int, int] | None = None,
    ) -> LogSlice:
        first_bytes = last_offset = 0  # not known yet
        position = self._segments.positions.get(offset, -1) if active and found is None else -1
        if position < 0:
            if found is None:
                found = segment.locate(offset, waits_for_disk)
                if found is None:
                    return LogSlice(None, 0, 0, offset, active)
            position, first_bytes, offset, last_offset = found

        end_offset = self._offsets.log_end_offset
        end = segment.size_bytes
        if upper_offset < end_offset:
            end = self._upper_position(segment, active, upper_offset, waits_for_disk)
        elif active:
            self._segments.remember(end_offset, end)

        size_bytes = end - position
        if size_bytes > max_bytes:
            size_bytes = max_bytes
            if not first_bytes:
                header = segment.log.read(OFFSETS.size, position, waits_for_disk)
                if len(header) < OFFSETS.size:
                    raise KafkaError(
                        ErrorCode.KAFKA_STORAGE_ERROR, f"{segment.log.path} ends before position {position}"
                    )
                base_offset, length, _, _, _, _, delta = OFFSETS.unpack(header)
                first_bytes, last_offset = length + LENGTH_OVERHEAD, base_offset + delta
            if first_bytes > max_bytes:
                size_bytes = first_bytes if min_one_batch else 0
            if active and 0 < size_bytes < 2 * first_bytes:  # the next read begins behind the first batch
                self._segments.remember(last_offset + 1, position + first_bytes)
        if size_bytes <= 0:
            return LogSlice(None, 0, 0, offset, active)
        return LogSlice(segment.log, position, size_bytes, offset, active)

    def end_offset_of(self, piece: LogSlice, waits_for_disk: bool = True) -> int:
        """Return an offset above every batch of a slice that was just read, and above few others: that of the next
        index entry. (Kafka's LogSegment.fetchUpperBoundOffset.) NotCached as in `read`."""
        segments = self._segments
        index = segments.index_of(piece.first_offset)
        segment = segments.items[index]
        end = piece.position + piece.size_bytes
        try:
            if end < segment.size_bytes:
                found = segment.offset_index
                slot = found.entries_below_position(end, waits_for_disk)
                if slot < found.entries:
                    return found.offset_of(slot, waits_for_disk)
        except OSError as error:
            self._health.fail(error, "cannot read")
        return self._offsets.log_end_offset if segment is segments.active else segments.bases[index + 1]

    def _upper_position(self, segment: Segment, active: bool, upper_offset: int, waits_for_disk: bool) -> int:
        """Return the position of the batch that reaches up to `upper_offset`; the end of the segment without one."""
        if not active:
            index = self._segments.index_of(segment.base_offset)
            if upper_offset >= self._segments.bases[index + 1]:
                return segment.size_bytes
        else:
            position = self._segments.positions.get(upper_offset, -1)
            if position >= 0:
                return position
        found = segment.locate(upper_offset, waits_for_disk)
        if found is None:
            return segment.size_bytes
        if active and found[2] == upper_offset:
            self._segments.remember(upper_offset, found[0])
        return found[0]

    def aborted_transactions(
        self, from_offset: int, upper_offset: int, waits_for_disk: bool = True
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions that have offsets from `from_offset` on and below `upper_offset`, sorted by
        their first offset. Without `waits_for_disk` NotCached may be raised.

        The marker of a transaction may lie in a later segment than its batches. (Kafka's
        UnifiedLog.collectAbortedTransactions.)
        """
        found: list[AbortedTransaction] = []
        segments = self._segments
        try:
            for segment in segments.items[segments.index_of(from_offset) :]:
                index = segment.transaction_index
                if index is not None and index.collect(from_offset, upper_offset, found, waits_for_disk):
                    break
        except OSError as error:
            self._health.fail(error, "cannot read a transaction index")
        found.sort(key=attrgetter("first_offset"))
        return found

    def offsets_before(self, timestamp_ms: int, max_count: int, now_ms: int) -> list[int]:
        """Return at most `max_count` offsets, the greatest first: the base offsets of segments whose files were last
        written by then, and the log end offset if that is now. -1 stands for now, -2 for the start of the log.

        (Kafka's UnifiedLog.legacyFetchOffsetsBefore, from before records had timestamps.)
        """
        offsets, segments = self._offsets, self._segments.items
        try:
            known = [max(segment.base_offset, offsets.log_start_offset) for segment in segments]
            if self._segments.active.size_bytes:
                known.append(offsets.log_end_offset)
            count = len(known)
            if timestamp_ms == -2:
                count = 1
            elif timestamp_ms >= 0:
                if count > len(segments) and now_ms > timestamp_ms:
                    count -= 1
                while 0 < count <= len(segments):
                    if segments[count - 1].log.modified_ms() <= timestamp_ms:
                        break
                    count -= 1
        except OSError as error:
            self._health.fail(error, "cannot read its segments")
        return sorted(known[max(0, count - max(0, max_count)) : count], reverse=True)
