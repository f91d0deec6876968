"""Message sets converted up to record batches, for producers before 0.11. (Kafka's LogValidator, which converts too.)

One set becomes one batch: offsets from 0, no producer id, the codec of its first wrapper. Messages of magic 0 have no
timestamp. A set may contain several wrappers, or wrappers beside plain messages: brokers of that time accepted both.

A usual message passes one chain of comparisons in `_Conversion.convert`. A message that fails is read once more by
gregor.protocol.records.message_sets, which names the error.
"""

from __future__ import annotations

import struct
from functools import cache, lru_cache, partial

from gregor.protocol.records.batch import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    INT64_MAX,
    INT64_MIN,
    LOG_APPEND_TIME,
    MAGIC_AT,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_BIT,
    Buffer,
    append_varint,
    seal_batch,
    wrapped_int64,
)
from gregor.protocol.records.compression import NONE, compress
from gregor.protocol.records.message_sets import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    SIZE_END,
    InvalidMessageSet,
    Message,
    checksum,
    iter_shallow,
    unwrap,
)
from gregor.protocol.turns import BYTES_PER_STEP, ITEMS_PER_STEP, Steps, run_all

# offset, message size, crc, magic, attributes, timestamp with magic 1, key size
_unpack_0 = struct.Struct(">qiIbbi").unpack_from
_unpack_1 = struct.Struct(">qiIbbqi").unpack_from
_unpack_size = struct.Struct(">i").unpack_from

NO_LIMIT = 2**31 - 1
INLINE_COMPRESSED_BYTES = 2 * 1024
"""A longer value may become so large that it must not be decompressed on the caller's thread."""
INLINE_PLAIN_BYTES = 16 * 1024


class MessageTooLarge(ValueError):
    """A message, or the batch that the set becomes, is larger than allowed."""


def upconvert(data: Buffer, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytearray:
    """Convert a message set to one record batch.

    A timestamp type of LogAppendTime is carried over, so that the append refuses the batch as it refuses one of a
    current producer. Raises CorruptBatch if the set cannot be read or is empty, and its subclass InvalidMessageSet if
    every checksum is right and the set is complete.
    """
    return run_all(upconverting(data, max_decompressed_bytes=max_decompressed_bytes))


def upconverting(
    data: Buffer,
    into: bytearray | None = None,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    max_message_bytes: int = NO_LIMIT,
    max_plain_bytes: int = NO_LIMIT,
) -> Steps[bytearray]:
    """Convert as `upconvert` does, in steps, into an empty buffer if one is given.

    `data` is not read after the first step. Raises MessageTooLarge as early as possible if an entry of the set is
    larger than `max_message_bytes`, or if a batch without a codec would be larger than `max_plain_bytes`.
    """
    data = bytes(data)
    work = _Conversion(bytearray() if into is None else into, max_message_bytes)
    codec = NONE
    left = max_decompressed_bytes
    position = 0
    while position < len(data):
        position = work.convert(data, position, None)
        wrapper, work.wrapper = work.wrapper, None
        if wrapper is not None:
            codec = codec or wrapper.codec
            unpack = partial(unwrap, wrapper, left)
            small = wrapper.value is None or len(wrapper.value) <= INLINE_COMPRESSED_BYTES
            inner_set = unpack() if small else (yield unpack)
            left -= len(inner_set)
            if not inner_set:
                raise InvalidMessageSet("a compressed message set without messages")
            within = 0
            while within < len(inner_set):
                within = work.convert(inner_set, within, wrapper)
                if within < len(inner_set):
                    yield None
        if codec == NONE and len(work.batch) > max_plain_bytes:
            raise MessageTooLarge(f"together these messages make a batch of more than {max_plain_bytes} bytes")
        if position < len(data):
            yield None
    if not work.count:
        raise InvalidMessageSet("a message set without messages")
    finish = partial(work.finish, codec)
    return finish() if len(work.batch) <= INLINE_PLAIN_BYTES else (yield finish)


class _Conversion:
    __slots__ = (
        "_max_message_bytes",
        "base_timestamp",
        "batch",
        "count",
        "newest",
        "timestamp_type",
        "wrapper",
    )

    def __init__(self, batch: bytearray, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        batch += bytes(RECORD_BATCH_OVERHEAD)
        self.batch = batch
        """The room for the header, and the records behind it."""
        self.count = 0
        self.base_timestamp = self.newest = NO_TIMESTAMP
        self.timestamp_type = 0
        self.wrapper: Message | None = None
        """The wrapper at which `convert` stopped."""

    def convert(self, data: bytes, position: int, within: Message | None) -> int:
        """Convert the messages of one step from a position on; return the position behind them, or behind a wrapper
        if there is one. A wrapper must not contain another."""
        batch, count, newest, base_timestamp = self.batch, self.count, self.newest, self.base_timestamp
        limit = len(data)
        view = memoryview(data)
        max_size = self._max_message_bytes - SIZE_END
        stamp = None
        if within is not None and within.timestamp_type == LOG_APPEND_TIME:
            stamp, self.timestamp_type = within.timestamp, LOG_APPEND_TIME
        stop = min(limit, position + BYTES_PER_STEP)
        last_count = count + ITEMS_PER_STEP
        while position < stop and count < last_count:
            try:
                # Byte 16 is the magic; the check below refuses all but 0 and 1.
                if data[position + MAGIC_AT]:
                    _, size, crc, magic, attributes, timestamp, key_size = _unpack_1(data, position)
                    key_start = position + 30
                else:
                    _, size, crc, magic, attributes, key_size = _unpack_0(data, position)
                    key_start, timestamp = position + 22, NO_TIMESTAMP
                end = position + SIZE_END + size
                key_end = key_start if key_size < 0 else key_start + key_size
                (value_size,) = _unpack_size(data, key_end)
            except (IndexError, struct.error):
                raise _error_at(data, position, within) from None
            value_start = key_end + 4
            if (
                (value_start if value_size < 0 else value_start + value_size) != end
                or end > limit
                or checksum(view[position + MAGIC_AT : end]) != crc
                or not 0 <= magic <= 1
                or timestamp < NO_TIMESTAMP
                or (within is not None and (attributes & CODEC_MASK or magic != within.magic))
            ):
                raise _error_at(data, position, within)
            if stamp is not None:
                timestamp = stamp
            elif (attributes or size > max_size) and within is None:
                packed = None if value_size < 0 else view[value_start:end]
                if self._keep_if_wrapper(size, magic, attributes, timestamp, packed):
                    position = end
                    break
            if timestamp > newest or not count:
                newest = timestamp
                if not count:
                    base_timestamp = timestamp
            offset_delta = _offset_delta(count) if count < 0x2000 else _long_varint(count)
            key = _NULL if key_size < 0 else _varint(key_size) + data[key_start:key_end]
            value = _NULL if value_size < 0 else _varint(value_size) + data[value_start:end]
            # attributes (none are in use), timestamp delta, offset delta, key, value, number of headers
            record = b"".join((b"\x00", _varint(timestamp - base_timestamp), offset_delta, key, value, b"\x00"))
            batch += _varint(len(record))
            batch += record
            count += 1
            position = end
        self.count, self.newest, self.base_timestamp = count, newest, base_timestamp
        return position

    def _keep_if_wrapper(
        self, size: int, magic: int, attributes: int, timestamp: int, packed: memoryview | None
    ) -> bool:
        """Check the size of an entry outside of a wrapper, and read its attributes. Return whether it is a wrapper
        itself; `packed` is its value then."""
        if size > self._max_message_bytes - SIZE_END:
            raise MessageTooLarge(f"a message of {size + SIZE_END} bytes, {self._max_message_bytes} are allowed")
        timestamp_type = LOG_APPEND_TIME if magic and attributes & APPEND_TIME_BIT else 0
        codec = attributes & CODEC_MASK
        if codec:
            value = None if packed is None else bytes(packed)
            self.wrapper = Message(0, timestamp, timestamp_type, None, value, magic, codec)
            return True
        self.timestamp_type = self.timestamp_type or timestamp_type
        return False

    def finish(self, codec: int) -> bytearray:
        """Compress the batch and write its header. The batch must not be changed afterwards."""
        batch = self.batch
        if codec != NONE:
            with memoryview(batch) as view, view[RECORD_BATCH_OVERHEAD:] as body:
                packed = compress(codec, body)
            batch[RECORD_BATCH_OVERHEAD:] = packed
        seal_batch(
            batch,
            attributes=codec | (TIMESTAMP_TYPE_BIT if self.timestamp_type == LOG_APPEND_TIME else 0),
            last_offset_delta=self.count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.newest,
            record_count=self.count,
        )
        return batch


def _long_varint(value: int) -> bytes:
    out = bytearray()
    append_varint(out, value if INT64_MIN <= value <= INT64_MAX else wrapped_int64(value))
    return bytes(out)


_NULL = _long_varint(-1)
_varint = lru_cache(4096)(_long_varint)
"""Few different sizes and timestamp deltas make up most of a set."""
_offset_delta = cache(_long_varint)
"""Of the first 8192 records of any batch: those whose varint has one or two bytes."""


def _error_at(data: bytes, position: int, within: Message | None) -> Exception:
    """Return the error of the message at a position, found by checking one property after the other."""
    message = next(iter_shallow(data, position))
    if within is not None and (message.magic != within.magic or message.codec):
        return InvalidMessageSet("a compressed message of another format than its wrapper, or compressed again")
    return InvalidMessageSet(f"a message with timestamp {message.timestamp}")
