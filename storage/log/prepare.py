"""The work of a leader on the records of a batch before it appends them; most topics need none.

- `compression.type` other than producer: the batch is stored in that codec. One that has it already is kept, whatever
  its level. The records stay as they are: their uncompressed bytes are the same.
- Compacted topics: every record has a key. Bounds on timestamps: every record is within them; -1 is no timestamp.
- `gregor.deep.validation`: the batch has as many records as its header states, with consecutive offset deltas, and each
  record fills exactly the length that it states.
- A batch that states more records than it has bytes: it has them, in a few compressed bytes; else its offsets would be
  those of records that do not exist.
- The timestamp type is that of the topic: a producer may set the append time bit, with which the time of each record is
  the max timestamp of the batch, but the bit is cleared. Whenever records are read, the max timestamp is corrected.

This is the work of Kafka's LogValidator, which reads all records of all topics; here the others stay opaque. Refused
records are listed one by one in the response (KIP-467), the first LISTED_ERRORS of them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.batch import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    INT64_MAX,
    INT64_MIN,
    CorruptBatch,
    wrapped_int64,
)
from gregor.protocol.records.checksum import crc32c
from gregor.protocol.records.compression import (
    CODEC_NAMES,
    GZIP,
    LZ4,
    NONE,
    ZSTD,
    DecompressionError,
    compress,
    decompress,
)
from gregor.protocol.records.scan import fits, record_heads
from gregor.protocol.turns import ITEMS_PER_STEP, Steps, run_all
from gregor.storage.log.validate import RefusedRecords, check_batch, check_size
from gregor.storage.segment.batches import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    CRC_START,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    MAX_TIMESTAMP_POSITION,
    NO_TIMESTAMP,
    STAMP,
    BatchHeader,
)

if TYPE_CHECKING:
    from gregor.config.topic import LogConfig

LISTED_ERRORS = 200
"""A response with an error for each of 100,000 records could be used for an attack."""

QUICK_BYTES = 20 * 1024
QUICK_PLAIN_BYTES = 40 * 1024
QUICK_RECORDS = 400
"""A batch below all three limits needs about a millisecond. Those of a producer with default settings are below."""
_SLOW_LEVEL = 9
"""Levels of lz4 and zstd above this one are slow even for few bytes."""

_LZ4_FAST_LEVEL = 9
"""Java's clients and brokers use the fast compressor at LZ4's default level, and the thorough one at all others."""
_LZ4_LEAST_HIGH_LEVEL = 3

NO_BOUND_MS = 2**62
"""A bound on the age of records above this many years counts as none (the default is the largest int64)."""


class NeedsPreparation(KafkaError):
    """Reading the records of this batch needs longer than an append may: `prepare` must be run on it first."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, "the batch is too large to be prepared on the way")


class PreparedBatch(bytearray):
    """A batch that has passed `prepare`, in the form in which it is appended."""


def is_special(config: LogConfig) -> bool:
    """Return whether batches of the usual kind need more than a check of their header."""
    return (
        config.compact
        or config.compression_type != "producer"
        or config.gregor_deep_validation
        or (config.message_timestamp_type == "CreateTime" and config.message_timestamp_before_max_ms < NO_BOUND_MS)
    )


def prepare(
    batch: memoryview | bytes | bytearray, config: LogConfig, now_ms: int, *, from_client: bool = True
) -> Steps[PreparedBatch]:
    """Check the batch and return it as it is to be appended. Its bytes must stay as they are until the end.

    A PreparedBatch was converted from another format and belongs to the caller: the limit of the size applies to the
    result, and a batch that needs no work is returned itself. Raises KafkaError, RefusedRecords among them.
    """
    converted = type(batch) is PreparedBatch
    view = check_batch(memoryview(batch), config, from_client=from_client, any_size=converted)
    work = _Work(view, config, now_ms, from_client)
    done = (yield from work.steps(DEFAULT_MAX_DECOMPRESSED_BYTES)) if work.needed else view
    check_size(len(done), config)
    return batch if done is view and type(batch) is PreparedBatch else PreparedBatch(done)


def prepare_quickly(view: memoryview, config: LogConfig, now_ms: int, *, from_client: bool) -> memoryview:
    """Do the same within an append. Raises NeedsPreparation if a client's batch is too large for that."""
    view = check_batch(view, config, from_client=from_client)
    work = _Work(view, config, now_ms, from_client)
    if not work.needed:
        return view
    if not from_client:
        return memoryview(run_all(work.steps(DEFAULT_MAX_DECOMPRESSED_BYTES)))
    if not work.quick:
        raise NeedsPreparation
    return memoryview(run_all(work.steps(QUICK_PLAIN_BYTES)))


class _Work:
    """The work on one batch whose header is valid."""

    __slots__ = ("_codec", "_config", "_header", "_level", "_now_ms", "_scans", "_target", "_view")

    def __init__(self, view: memoryview, config: LogConfig, now_ms: int, from_client: bool) -> None:
        self._view = view
        self._config = config
        self._now_ms = now_ms
        self._header = header = BatchHeader.read(view)
        attributes, max_timestamp = header.attributes, header.max_timestamp
        self._codec = self._target = attributes & CODEC_MASK
        self._level: int | None = None
        is_control = attributes & CONTROL_BIT
        if config.compression_type != "producer" and not (is_control and not self._codec):
            self._target, self._level = _target_codec(config)
        self._scans = from_client and bool(
            config.compact
            or config.gregor_deep_validation
            or attributes & APPEND_TIME_BIT
            or header.record_count > len(view)
        )
        if config.message_timestamp_type == "CreateTime" and not is_control:
            before_max_ms = config.message_timestamp_before_max_ms
            self._scans |= before_max_ms < NO_BOUND_MS or max_timestamp - now_ms > config.message_timestamp_after_max_ms

    @property
    def needed(self) -> bool:
        return self._scans or self._target != self._codec

    @property
    def quick(self) -> bool:
        return (
            len(self._view) <= QUICK_BYTES
            and self._header.record_count <= QUICK_RECORDS
            and not (self._target in (LZ4, ZSTD) and (self._level or 0) > _SLOW_LEVEL)
        )

    def steps(self, max_plain_bytes: int) -> Steps[bytearray | memoryview]:
        view, codec, target = self._view, self._codec, self._target
        body = view[HEADER_BYTES:]
        unpack = partial(_unpack, codec, body, max_plain_bytes)
        attributes, max_timestamp = self._header.attributes, self._header.max_timestamp
        if not self._scans:
            # One call, so that the uncompressed bytes are freed at its end.
            body = yield lambda: compress(target, unpack(), self._level)
        else:
            plain = (yield unpack) if codec else bytes(body)
            try:
                latest = yield from self._scan(plain)
            except CorruptBatch as error:
                raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
            if self._config.message_timestamp_type == "CreateTime":
                max_timestamp = latest
                attributes &= ~APPEND_TIME_BIT
            if target != codec:
                body = yield partial(compress, target, plain, self._level)
        attributes = attributes & ~CODEC_MASK | target
        if target == codec and (attributes, max_timestamp) == (self._header.attributes, self._header.max_timestamp):
            return view
        return self._assembled(attributes, max_timestamp, body)

    def _scan(self, plain: bytes) -> Steps[int]:
        """Check all records; returns the latest timestamp. Raises RefusedRecords and CorruptBatch."""
        config, header = self._config, self._header
        attributes, base_timestamp, max_timestamp = header.attributes, header.base_timestamp, header.max_timestamp
        wants_keys = config.compact and not attributes & CONTROL_BIT
        deep = config.gregor_deep_validation
        by_create_time = config.message_timestamp_type == "CreateTime"
        one_time = bool(attributes & APPEND_TIME_BIT)
        earliest = self._now_ms - config.message_timestamp_before_max_ms
        latest = self._now_ms + config.message_timestamp_after_max_ms
        largest = NO_TIMESTAMP
        refused: list[tuple[int, str]] = []
        count_refused = 0
        code = ErrorCode.INVALID_RECORD
        for index, (delta, offset_delta, has_key, position, end) in enumerate(record_heads(plain, header.record_count)):
            timestamp = max_timestamp if one_time else base_timestamp + delta
            if not INT64_MIN <= timestamp <= INT64_MAX:
                timestamp = wrapped_int64(timestamp)
            problem = ""
            if wants_keys and not has_key:
                problem = "a record without a key in a compacted topic"
            elif by_create_time and timestamp != NO_TIMESTAMP:
                if not earliest <= timestamp <= latest:
                    problem = f"timestamp {timestamp} lies outside of {earliest} to {latest}"
                    code = ErrorCode.INVALID_TIMESTAMP
            elif one_time:
                problem = "producers may not set the append time type"
                code = ErrorCode.INVALID_TIMESTAMP
            if deep:
                if not fits(plain, position, end):
                    raise CorruptBatch(f"key, value and headers do not fill record {index}")
                if offset_delta != index and not problem:
                    problem = f"offset delta {offset_delta}, {index} expected"
            if problem:
                count_refused += 1
                if count_refused <= LISTED_ERRORS:
                    refused.append((index, problem))
            elif timestamp > largest:
                largest = timestamp
            if index % ITEMS_PER_STEP == 0:
                yield None
        if refused:
            index, problem = refused[0]
            raise RefusedRecords(code, f"{count_refused} records refused, first {index}: {problem}", refused)
        return largest

    def _assembled(self, attributes: int, max_timestamp: int, body: memoryview | bytes) -> bytearray:
        size_bytes = HEADER_BYTES + len(body)
        check_size(size_bytes, self._config)
        changed = bytearray(self._view[:HEADER_BYTES])
        changed[LENGTH_POSITION:LENGTH_OVERHEAD] = (size_bytes - LENGTH_OVERHEAD).to_bytes(4)
        changed[MAX_TIMESTAMP_POSITION : MAX_TIMESTAMP_POSITION + 8] = max_timestamp.to_bytes(8, signed=True)
        STAMP.pack_into(changed, CRC_POSITION, 0, attributes)
        changed += body
        STAMP.pack_into(changed, CRC_POSITION, crc32c(memoryview(changed)[CRC_START:]), attributes)
        return changed


def _target_codec(config: LogConfig) -> tuple[int, int | None]:
    """Return the codec and the level of a topic."""
    name = config.compression_type
    if name == "uncompressed":
        return NONE, None
    codec = CODEC_NAMES.index(name)
    if codec == GZIP:
        return codec, None if config.compression_gzip_level < 0 else config.compression_gzip_level
    if codec == LZ4:
        level = config.compression_lz4_level
        return codec, None if level == _LZ4_FAST_LEVEL else max(level, _LZ4_LEAST_HIGH_LEVEL)
    return codec, config.compression_zstd_level if codec == ZSTD else None


def _unpack(codec: int, body: memoryview, max_bytes: int) -> bytes:
    try:
        return decompress(codec, body, max_bytes)
    except DecompressionError as error:
        if max_bytes == QUICK_PLAIN_BYTES:
            raise NeedsPreparation from None
        raise KafkaError(ErrorCode.INVALID_RECORD, f"records cannot be decompressed: {error}") from None
