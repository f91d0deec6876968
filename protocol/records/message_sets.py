"""Message sets, the record formats 0 and 1 of clients before 0.11. (Their conversion to record batches and back:
gregor.protocol.records.up_conversion and gregor.protocol.records.down_conversion.)

A set is entries one after another; all numbers big-endian:

==  =====  ============  ============================================================================================
at  bytes  field         meaning
==  =====  ============  ============================================================================================
 0      8  offset        a producer counts from 0; of a wrapper: of its last inner message
 8      4  message size  bytes after this field
12      4  crc           CRC-32 of everything from the magic to the end
16      1  magic         0, or 1 (KIP-32) with a timestamp
17      1  attributes    bits 0-2 codec (0-3), 3 timestamp type (magic 1 only; 1: LogAppendTime)
18      8  timestamp     magic 1 only; ms, -1: none
..      4  key size      -1: null; then the key
..      4  value size    -1: null; then the value
==  =====  ============  ============================================================================================

With a codec, the value of such a *wrapper* is a compressed set of the same magic whose messages carry no codec. Inner
offsets are absolute with magic 0; with magic 1 they count within the set (KIP-31). A wrapper with LogAppendTime stamps
all its inner messages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from gregor.protocol.records.batch import (
    CREATE_TIME,
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    LOG_APPEND_TIME,
    MAGIC_AT,
    NO_TIMESTAMP,
    Buffer,
    CorruptBatch,
)
from gregor.protocol.records.compression import LZ4, NONE, DecompressionError, decompress

_ENTRY = struct.Struct(">qiIbb")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
checksum = crc32
PREFIX = struct.Struct(">qiI")  # offset, message size, crc
MESSAGE_HEADS = (struct.Struct(">bb"), struct.Struct(">bbq"))  # magic, attributes; and a timestamp
_NULL = _INT32.pack(-1)

SIZE_END = 12  # the message size counts neither the offset nor itself
CODEC_MASK = 0x07
APPEND_TIME_BIT = 0x08


class InvalidMessageSet(CorruptBatch):
    """A set whose bytes arrived as they were sent, but cannot be read: a retry has no use."""


class Message(NamedTuple):
    """One message; ``codec`` is that of its wrapper, 0 without a wrapper."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    magic: int
    codec: int


def iter_messages(data: Buffer, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Iterator[Message]:
    """Yield all messages, also those in wrappers, and verify checksums. CorruptBatch is the only error, also for a
    partial last message. ``max_decompressed_bytes`` limits all wrappers of the set together."""
    left = max_decompressed_bytes
    for message in iter_shallow(bytes(data)):
        if message.codec == NONE:
            yield message
            continue
        inner_set = unwrap(message, left)
        left -= len(inner_set)
        yield from _iter_inner(message, inner_set)


def append_message(
    out: bytearray,
    offset: int,
    magic: int,
    attributes: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
) -> None:
    """Write one entry of a set behind those that `out` holds. Magic 0 has no timestamp."""
    body = MESSAGE_HEADS[magic].pack(magic, attributes, timestamp) if magic else MESSAGE_HEADS[0].pack(0, attributes)
    body += _NULL if key is None else _INT32.pack(len(key)) + key
    body += _NULL if value is None else _INT32.pack(len(value)) + value
    out += PREFIX.pack(offset, len(body) + 4, crc32(body))
    out += body


def iter_shallow(data: bytes, position: int = 0) -> Iterator[Message]:
    """Yield the entries from a position on, wrappers included as they are. CorruptBatch is the only error."""
    while position < len(data):
        if len(data) - position < _ENTRY.size:
            raise CorruptBatch(f"a message set ends in {len(data) - position} stray bytes")
        offset, size, crc, magic, attributes = _ENTRY.unpack_from(data, position)
        end = position + SIZE_END + size
        body = position + _ENTRY.size
        if magic not in (0, 1):
            raise CorruptBatch(f"magic {magic} in a message set")
        # Past the header, the smallest message has two sizes (and a timestamp with magic 1).
        if end < body + (8 if magic == 0 else 16) or end > len(data):
            raise CorruptBatch(f"a message of {size} bytes, of which {len(data) - position - SIZE_END} are there")
        if crc32(memoryview(data)[position + MAGIC_AT : end]) != crc:
            raise CorruptBatch(f"wrong checksum of the message at byte {position}")
        timestamp, timestamp_type = NO_TIMESTAMP, CREATE_TIME
        if magic == 1:
            timestamp = _INT64.unpack_from(data, body)[0]
            timestamp_type = LOG_APPEND_TIME if attributes & APPEND_TIME_BIT else CREATE_TIME
            body += 8
        key, body = _sized(data, body, end)
        value, body = _sized(data, body, end)
        if body != end:
            raise InvalidMessageSet(f"{end - body} bytes follow the value of a message")
        yield Message(offset, timestamp, timestamp_type, key, value, magic, attributes & CODEC_MASK)
        position = end


def _sized(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    if position + 4 > end:
        raise InvalidMessageSet("a message ends before its key or value")
    size: int = _INT32.unpack_from(data, position)[0]
    position += 4
    if size < 0:
        return None, position
    if position + size > end:
        raise InvalidMessageSet(f"a field of {size} bytes reaches beyond its message")
    return data[position : position + size], position + size


def unwrap(wrapper: Message, max_bytes: int) -> bytes:
    """Return the set within a wrapper. Raises InvalidMessageSet."""
    if wrapper.codec > LZ4:
        raise InvalidMessageSet(f"codec {wrapper.codec} in a message set")
    if wrapper.value is None:
        raise InvalidMessageSet("a compressed message without a value")
    try:
        return decompress(wrapper.codec, wrapper.value, max_bytes, any_lz4_header_checksum=wrapper.magic == 0)
    except DecompressionError as error:
        raise InvalidMessageSet(str(error)) from error


def _iter_inner(wrapper: Message, inner_set: bytes) -> Iterator[Message]:
    inner = list(_iter_unwrapped(wrapper, inner_set))
    # With magic 1 inner offsets count from any start; the wrapper has the absolute offset of the last message.
    shift = wrapper.offset - inner[-1].offset if wrapper.magic == 1 else 0
    for message in inner:
        yield message._replace(offset=message.offset + shift)


def _iter_unwrapped(wrapper: Message, inner_set: bytes) -> Iterator[Message]:
    """Yield the messages of a wrapper, at least one, with their offsets in the wrapper."""
    if not inner_set:
        raise InvalidMessageSet("a compressed message set without messages")
    append_time = wrapper.timestamp_type == LOG_APPEND_TIME
    for message in iter_shallow(inner_set):
        if message.magic != wrapper.magic or message.codec != NONE:
            raise InvalidMessageSet("a compressed message of another format than its wrapper, or compressed again")
        yield message._replace(
            timestamp=wrapper.timestamp if append_time else message.timestamp,
            timestamp_type=wrapper.timestamp_type,
            codec=wrapper.codec,
        )
