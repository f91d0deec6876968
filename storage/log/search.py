"""Finding offsets by timestamp, in steps: neither the records of a batch nor a cold disk may block the caller.

A search reads the time index of each segment until one may hold the timestamp, from there the headers of batches, and
at last the records of one batch. A call between two steps fetches bytes that are not in memory (fs.cached_reads).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.batch import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    INT64_MAX,
    INT64_MIN,
    MAX_PLAIN_BYTES,
    CorruptBatch,
    wrapped_int64,
)
from gregor.protocol.records.compression import DecompressionError, TooLarge, decompress, plain_pieces
from gregor.protocol.records.scan import Head, HeadStream, record_heads
from gregor.protocol.turns import BYTES_PER_STEP, ITEMS_PER_STEP, Steps
from gregor.storage.fs.cached_reads import NotCached
from gregor.storage.segment.batches import APPEND_TIME_BIT, CODEC_MASK, HEADER_BYTES, BatchHeader
from gregor.storage.segment.segment import OldMessageFormat

if TYPE_CHECKING:
    from gregor.storage.log.state import LogHealth, LogOffsets, Segments
    from gregor.storage.segment.segment import Segment

ResultT = TypeVar("ResultT")

Found = tuple[int, int, int]
"""timestamp, offset, leader epoch."""

_MAX_FETCHES = 64
"""A read that still misses a piece after as many fetches waits for it: memory is too short to keep it."""
_MAX_FETCHES_PER_SEGMENT = 4
_MAX_ATTEMPTS = 5


class Searcher:
    """Searches one log. A result is right for the log as it was at some time during the search."""

    __slots__ = ("_health", "_offsets", "_segments")

    def __init__(self, offsets: LogOffsets, segments: Segments, health: LogHealth) -> None:
        self._offsets = offsets
        self._segments = segments
        self._health = health

    def offset_for_timestamp(self, timestamp_ms: int) -> Steps[Found | None]:
        """Return (timestamp, offset, leader epoch) of the first record that is at least as late; None without one.

        (Kafka's UnifiedLog.fetchOffsetByTimestamp.) Raises KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE and
        UNSUPPORTED_FOR_MESSAGE_FORMAT.
        """
        return self._steadily(lambda segments: self._first_at_least(segments, timestamp_ms))

    def offset_of_max_timestamp(self) -> Steps[Found | None]:
        """Return the same of the first of the latest records; None if no record has a timestamp."""
        return self._steadily(self._first_of_latest)

    def _steadily(self, search: Callable[[list[Segment]], Steps[Found | None]]) -> Steps[Found | None]:
        """Search, and start over when the segments were deleted or replaced meanwhile. The offset of a message of an
        old format is not found: clients treat the error as such."""
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            segments = list(self._segments.items)
            try:
                return (yield from search(segments))
            except OSError as error:
                if attempt == _MAX_ATTEMPTS or all(segment in self._segments.items for segment in segments):
                    self._health.fail(error, "cannot search by timestamp")
            except OldMessageFormat:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                    f"{self._health.name} cannot be searched by timestamp: a segment holds messages from before Kafka "
                    "0.11, which this broker does not serve",
                ) from None
        return None

    def _first_at_least(self, segments: list[Segment], timestamp_ms: int) -> Steps[Found | None]:
        for segment in segments:
            if segment.size_bytes:
                largest = yield from self._fetching(segment.read_largest_timestamp_ms)
                if largest >= timestamp_ms:
                    found = yield from self._search_segment(segment, timestamp_ms)
                    if found is not None:
                        return found
            yield None
        return None

    def _first_of_latest(self, segments: list[Segment]) -> Steps[Found | None]:
        latest = segments[0]
        for segment in segments:
            yield from self._fetching(segment.load_timestamps)
            if segment.max_timestamp > latest.max_timestamp:
                latest = segment
            yield None
        if latest.max_timestamp < 0:
            return None
        return (yield from self._search_segment(latest, latest.max_timestamp))

    def _search_segment(self, segment: Segment, timestamp_ms: int) -> Steps[Found | None]:
        start_offset = self._offsets.log_start_offset
        position = yield from self._fetching(partial(_start_position, segment, timestamp_ms, start_offset))
        while True:
            batches = yield from self._fetching(partial(_scan_some, segment, position))
            for batch in batches:
                if batch.max_timestamp >= timestamp_ms and batch.last_offset >= start_offset:
                    data = yield from self._fetching(partial(segment.log.read, batch.size_bytes, batch.position))
                    if len(data) < batch.size_bytes:
                        return None  # truncated meanwhile
                    found = yield from self._search_batch(segment, data, timestamp_ms, start_offset)
                    if found is not None:
                        return *found, batch.leader_epoch
                position = batch.position + batch.size_bytes
            if len(batches) < ITEMS_PER_STEP:
                return None
            yield None

    def _search_batch(
        self, segment: Segment, batch: bytes, timestamp_ms: int, start_offset: int
    ) -> Steps[tuple[int, int] | None]:
        header = BatchHeader.read(batch)
        body, codec = memoryview(batch)[HEADER_BYTES:], header.attributes & CODEC_MASK
        try:
            try:
                plain = (
                    (yield partial(decompress, codec, body, DEFAULT_MAX_DECOMPRESSED_BYTES)) if codec else bytes(body)
                )
            except TooLarge:
                return (yield from _search_pieces(header, body, timestamp_ms, start_offset))
            heads = record_heads(plain, header.record_count)
            return (yield from _first_of(heads, header, timestamp_ms, start_offset))
        except (CorruptBatch, DecompressionError) as error:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"{self._health.name}, {segment.base_offset}.log: {error}"
            ) from None

    def _fetching(self, read: Callable[[bool], ResultT]) -> Steps[ResultT]:
        """Return what `read(waits_for_disk)` returns. It is called again after each piece that was fetched for it."""
        for _ in range(_MAX_FETCHES):
            try:
                return read(False)
            except NotCached as missing:
                fetch = missing.fetcher()
            yield fetch
        return read(True)

    def prefetching(self, read: Callable[[], object]) -> Steps[None]:
        """Fetch what the event loop is about to read from this log.

        `read` does the same reads, with `waits_for_disk=False`, and is called until it no longer raises NotCached.
        Its result and its errors are dropped. The log keeps the timestamps of its segments in memory from then on.
        """
        with suppress(OSError, KafkaError):
            for _ in range(_MAX_FETCHES + _MAX_FETCHES_PER_SEGMENT * len(self._segments.items)):
                try:
                    read()
                    return
                except NotCached as missing:
                    fetch = missing.fetcher()
                yield fetch


def _first_of(
    heads: Iterable[Head | tuple[int, int]], header: BatchHeader, timestamp_ms: int, start_offset: int
) -> Steps[tuple[int, int] | None]:
    """Return timestamp and offset of the first record of a batch that is as late. Raises CorruptBatch."""
    base_offset, base_timestamp, max_timestamp = header.base_offset, header.base_timestamp, header.max_timestamp
    has_one_time = header.attributes & APPEND_TIME_BIT
    for index, head in enumerate(heads):
        timestamp, offset = base_timestamp + head[0], base_offset + head[1]
        if has_one_time:
            timestamp = max_timestamp
        elif not INT64_MIN <= timestamp <= INT64_MAX:
            timestamp = wrapped_int64(timestamp)
        if timestamp >= timestamp_ms and offset >= start_offset:
            return timestamp, offset
        if not (index + 1) % ITEMS_PER_STEP:
            yield None
    return None


def _search_pieces(
    header: BatchHeader, body: memoryview, timestamp_ms: int, start_offset: int
) -> Steps[tuple[int, int] | None]:
    """Search a batch that is too large to be decompressed as a whole, of which one piece at a time is in memory: 1 MB
    can become gigabytes. Raises CorruptBatch and DecompressionError."""
    pieces = plain_pieces(header.attributes & CODEC_MASK, body, MAX_PLAIN_BYTES, BYTES_PER_STEP)
    stream = HeadStream(header.record_count)
    while (piece := (yield partial(next, pieces, None))) is not None:
        found = yield from _first_of(stream.heads(piece), header, timestamp_ms, start_offset)
        if found is not None:
            return found
    return (yield from _first_of(stream.heads(b"", is_last=True), header, timestamp_ms, start_offset))


def _start_position(segment: Segment, timestamp_ms: int, start_offset: int, waits_for_disk: bool) -> int:
    """Return the position of the first batch that may have such a timestamp, or of one before it."""
    offset = max(segment.time_index.lookup(timestamp_ms - 1, waits_for_disk)[1], start_offset)
    return segment.offset_index.lookup(offset, waits_for_disk)[1]


def _scan_some(segment: Segment, position: int, waits_for_disk: bool) -> list[BatchHeader]:
    return list(islice(segment.scan(position, verify_crc=False, waits_for_disk=waits_for_disk), ITEMS_PER_STEP))
