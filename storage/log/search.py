"""Finding offsets by timestamp: in steps, as neither the records of a batch nor a cold disk may hold the caller up.

A search reads the time index of each segment until one may have what is asked for, from there the headers of batches,
and at last the records of one batch. What is not in memory is left to a call between two steps (fs.cached_reads).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.batch import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    INT64_MAX,
    INT64_MIN,
    CorruptBatch,
    wrapped_int64,
)
from gregor.protocol.records.compression import DecompressionError, decompress
from gregor.protocol.records.scan import record_heads
from gregor.protocol.turns import ITEMS_PER_STEP, Steps
from gregor.storage.fs.cached_reads import NotCached
from gregor.storage.segment.batches import APPEND_TIME_BIT, CODEC_MASK, HEADER_BYTES, BatchHeader

if TYPE_CHECKING:
    from gregor.storage.log.segments import Segments
    from gregor.storage.log.state import LogHealth, LogOffsets
    from gregor.storage.segment.segment import Segment

ResultT = TypeVar("ResultT")

Found = tuple[int, int, int]
"""timestamp, offset, leader epoch."""

_FETCHES = 64
"""Whoever still misses the same piece after so many fetches waits for it: memory is too short to keep it."""
_FETCHES_OF_A_SEGMENT = 4
_ATTEMPTS = 5


class Searcher:
    """Searches one log. What is found is right for the log as it was at some time during the search."""

    __slots__ = ("_files", "_health", "_offsets", "_segments")

    def __init__(self, offsets: LogOffsets, segments: Segments, health: LogHealth) -> None:
        self._offsets = offsets
        self._segments = segments
        self._health = health
        self._files = segments.files

    def offset_for_timestamp(self, timestamp_ms: int) -> Steps[Found | None]:
        """(timestamp, offset, leader epoch) of the first record that is at least as late; None if there is none.

        (Kafka's UnifiedLog.fetchOffsetByTimestamp.) Raises KAFKA_STORAGE_ERROR and CORRUPT_MESSAGE.
        """
        return self._steadily(lambda segments: self._first_at_least(segments, timestamp_ms))

    def offset_of_max_timestamp(self) -> Steps[Found | None]:
        """(timestamp, offset, leader epoch) of the first of the latest records; None if no record has a timestamp."""
        return self._steadily(self._first_of_latest)

    def _steadily(self, search: Callable[[list[Segment]], Steps[Found | None]]) -> Steps[Found | None]:
        """A search that begins anew when the segments it looks at were deleted or replaced meanwhile."""
        for attempt in range(1, _ATTEMPTS + 1):
            segments = list(self._segments.items)
            try:
                return (yield from search(segments))
            except OSError as error:
                if attempt == _ATTEMPTS or all(segment in self._segments.items for segment in segments):
                    self._health.fail(error, "cannot search by timestamp")
        return None

    def _first_at_least(self, segments: list[Segment], timestamp_ms: int) -> Steps[Found | None]:
        for segment in segments:
            if segment.size_bytes:
                largest = yield from self._patiently(partial(getattr, segment, "largest_timestamp_ms"))
                if largest >= timestamp_ms:
                    found = yield from self._search_segment(segment, timestamp_ms)
                    if found is not None:
                        return found
            yield None
        return None

    def _first_of_latest(self, segments: list[Segment]) -> Steps[Found | None]:
        latest = segments[0]
        for segment in segments:
            yield from self._patiently(segment.load_timestamps)
            if segment.max_timestamp > latest.max_timestamp:
                latest = segment
            yield None
        if latest.max_timestamp < 0:
            return None
        return (yield from self._search_segment(latest, latest.max_timestamp))

    def _search_segment(self, segment: Segment, timestamp_ms: int) -> Steps[Found | None]:
        start_offset = self._offsets.log_start_offset
        position = yield from self._patiently(lambda: _start_position(segment, timestamp_ms, start_offset))
        while True:
            batches = yield from self._patiently(partial(_scan_some, segment, position))
            for batch in batches:
                if batch.max_timestamp >= timestamp_ms and batch.last_offset >= start_offset:
                    data = yield from self._patiently(partial(segment.log.read, batch.size_bytes, batch.position))
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
        base_offset, base_timestamp, max_timestamp = header.base_offset, header.base_timestamp, header.max_timestamp
        attributes, count = header.attributes, header.record_count
        has_one_time = attributes & APPEND_TIME_BIT
        try:
            body = memoryview(batch)[HEADER_BYTES:]
            codec = attributes & CODEC_MASK
            plain = (yield partial(decompress, codec, body, DEFAULT_MAX_DECOMPRESSED_BYTES)) if codec else bytes(body)
            for index, head in enumerate(record_heads(plain, count)):
                timestamp, offset = base_timestamp + head[0], base_offset + head[1]
                if has_one_time:
                    timestamp = max_timestamp
                elif not INT64_MIN <= timestamp <= INT64_MAX:
                    timestamp = wrapped_int64(timestamp)
                if timestamp >= timestamp_ms and offset >= start_offset:
                    return timestamp, offset
                if not (index + 1) % ITEMS_PER_STEP:
                    yield None
        except (CorruptBatch, DecompressionError) as error:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"{self._health.name}, {segment.base_offset}.log: {error}"
            ) from None
        return None

    def _patiently(self, read: Callable[[], ResultT]) -> Steps[ResultT]:
        """What `read` returns. It is called again after each piece that had to be fetched for it."""
        files = self._files
        for _ in range(_FETCHES):
            files.waits_for_disk = False
            try:
                return read()
            except NotCached as missing:
                fetch = missing.fetcher()
            finally:
                files.waits_for_disk = True
            yield fetch
        return read()

    def looking(self, look: Callable[[], object]) -> Steps[None]:
        """For whoever is about to ask this log on the loop for what may have to be read: `look` does the same, and is
        called until nothing has to be fetched for it any more. What it finds, an error too, is not for this caller.
        What a log tells of its segments' ages it remembers."""
        files = self._files
        with suppress(OSError, KafkaError):
            for _ in range(_FETCHES + _FETCHES_OF_A_SEGMENT * len(self._segments.items)):
                files.waits_for_disk = False
                try:
                    look()
                    return
                except NotCached as missing:
                    fetch = missing.fetcher()
                finally:
                    files.waits_for_disk = True
                yield fetch


def _start_position(segment: Segment, timestamp_ms: int, start_offset: int) -> int:
    """Where the first batch that may have such a time begins, or one before it."""
    offset = max(segment.time_index.lookup(timestamp_ms - 1)[1], start_offset)
    return segment.offset_index.lookup(offset)[1]


def _scan_some(segment: Segment, position: int) -> list[BatchHeader]:
    return list(islice(segment.scan(position, verify_crc=False), ITEMS_PER_STEP))
