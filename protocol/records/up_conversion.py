"""Message sets converted up to record batches, for producers before 0.11. (Kafka's LogValidator, which converts too.)

One set becomes one batch: offsets from 0, no producer id, the codec of its first wrapper. Messages of magic 0 have no
timestamp. A set may hold several wrappers, or some beside plain messages, as brokers of that time took it.

The usual message passes one chain of comparisons in `_Conversion.take`; what does not is read once more by
gregor.protocol.records.message_sets, to be told what is wrong with it.
"""

from __future__ import annotations

import struct
from functools import lru_cache, partial

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
"""What is longer may become so large that decompressing it is no work for the caller's thread."""
INLINE_PLAIN_BYTES = 16 * 1024


class MessageTooLarge(ValueError):
    """A message, or the batch that the set becomes, is larger than allowed."""


def upconvert(data: Buffer, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytearray:
    """One record batch with the same messages.

    A timestamp type of LogAppendTime is carried over, so that whoever takes the batch refuses it as it would from a
    producer of today. CorruptBatch when the set cannot be read or is empty; it is InvalidMessageSet where no checksum
    is wrong and nothing is cut off.
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
    """`upconvert`, into an empty buffer if one is given. `data` is not read after the first step.

    MessageTooLarge, as soon as it is known, when an entry of the set is above `max_message_bytes` or a batch without a
    codec would be above `max_plain_bytes`.
    """
    data = bytes(data)
    work = _Conversion(bytearray() if into is None else into, max_message_bytes)
    codec = NONE
    left = max_decompressed_bytes
    position = 0
    while position < len(data):
        position = work.take(data, position, None)
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
                within = work.take(inner_set, within, wrapper)
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
        """Records stand behind the room for the header."""
        self.count = 0
        self.base_timestamp = self.newest = NO_TIMESTAMP
        self.timestamp_type = 0
        self.wrapper: Message | None = None
        """Set where `take` came upon one."""

    def take(self, data: bytes, position: int, within: Message | None) -> int:
        """Convert a step's worth of the messages from a position on; returns where that ends, behind a wrapper if
        there is one. Within a wrapper there may be no other."""
        batch, count, newest, base_timestamp = self.batch, self.count, self.newest, self.base_timestamp
        limit = len(data)
        view = memoryview(data)
        max_size = self._max_message_bytes - SIZE_END
        stamp = within.timestamp if within is not None and within.timestamp_type == LOG_APPEND_TIME else None
        stop = min(limit, position + BYTES_PER_STEP)
        last_count = count + ITEMS_PER_STEP
        while position < stop and count < last_count:
            try:
                # Byte 16 is the magic: anything but 0 and 1 is nothing that these layouts have.
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
                raise _what_is_wrong(data, position, within) from None
            value_start = key_end + 4
            if (
                (value_start if value_size < 0 else value_start + value_size) != end
                or end > limit
                or checksum(view[position + MAGIC_AT : end]) != crc
                or not 0 <= magic <= 1
                or timestamp < NO_TIMESTAMP
            ):
                raise _what_is_wrong(data, position, within)
            if within is not None:
                if attributes & CODEC_MASK or magic != within.magic:
                    raise _what_is_wrong(data, position, within)
                if stamp is not None:
                    timestamp = stamp
                    self.timestamp_type = LOG_APPEND_TIME
            elif attributes or size > max_size:
                if size > max_size:
                    raise MessageTooLarge(f"a message of {size + SIZE_END} bytes, {max_size + SIZE_END} are allowed")
                type_bit = LOG_APPEND_TIME if magic and attributes & APPEND_TIME_BIT else 0
                if attributes & CODEC_MASK:
                    value = None if value_size < 0 else data[value_start:end]
                    self.wrapper = Message(0, timestamp, type_bit, None, value, magic, attributes & CODEC_MASK)
                    position = end
                    break
                self.timestamp_type = self.timestamp_type or type_bit
            if timestamp > newest or not count:
                newest = timestamp
                if not count:
                    base_timestamp = timestamp
            # Attributes of which none are in use, time, offset, key, value, no headers.
            record = b"".join(
                (
                    b"\x00",
                    _varint(timestamp - base_timestamp),
                    (
                        bytes((count << 1,))
                        if count < 0x40
                        else bytes((count << 1 & 0x7F | 0x80, count >> 6))
                        if count < 0x2000
                        else _long_varint(count)
                    ),
                    _NULL if key_size < 0 else _varint(key_size) + data[key_start:key_end],
                    _NULL if value_size < 0 else _varint(value_size) + data[value_start:end],
                    b"\x00",
                )
            )
            batch += _varint(len(record))
            batch += record
            count += 1
            position = end
        self.count, self.newest, self.base_timestamp = count, newest, base_timestamp
        return position

    def finish(self, codec: int) -> bytearray:
        """The batch: compressed, with its header. Nothing may be done to it any more."""
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
"""Sizes and steps of time come again and again."""


def _what_is_wrong(data: bytes, position: int, within: Message | None) -> Exception:
    """With the message at a position, by those who look at one thing after the other."""
    message = next(iter_shallow(data, position))
    if within is not None and (message.magic != within.magic or message.codec):
        return InvalidMessageSet("a compressed message of another format than its wrapper, or compressed again")
    return InvalidMessageSet(f"a message with timestamp {message.timestamp}")
