"""Record batches converted down to message sets, for consumers before 0.11. (Kafka's RecordsUtil.downConvert.)

- Without a codec every record becomes a message of its own; records before the requested offset are left out.
- With a codec, a batch becomes one wrapper, which has the offset of its last message. Offsets within are absolute with
  magic 0, with magic 1 they count from the first message. Gaps that compaction made are kept.
- Headers, producers and, with magic 0, timestamps get lost. Control batches have no message and are left out.
- zstd is newer than these formats: such a batch cannot be converted.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import NamedTuple

from gregor.protocol.records.batch import (
    INT64_MAX,
    INT64_MIN,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    Buffer,
    CorruptBatch,
    RecordBatch,
    iter_batches,
    read_varint,
    wrapped_int64,
)
from gregor.protocol.records.compression import LZ4, NONE, ZSTD, compress, with_wrong_lz4_header_checksum
from gregor.protocol.records.message_sets import APPEND_TIME_BIT, MESSAGE_HEADS, PREFIX, append_message, checksum
from gregor.protocol.records.scan import fits, record_heads
from gregor.protocol.turns import BYTES_PER_STEP, ITEMS_PER_STEP, Steps

_INLINE_COMPRESSED_BYTES = 2 * 1024
_INLINE_PLAIN_BYTES = 16 * 1024

_ATTRIBUTES_AT = 17  # offset, size, checksum and magic come first
_CODEC_BITS = 0x07

_INT32 = struct.Struct(">i")
_NULL = _INT32.pack(-1)


class UnsupportedCodec(ValueError):
    """The first batch is compressed by a codec that no message set has."""


class Converted(NamedTuple):
    message_set: bytes
    """Complete messages only; empty if no record of the batches can be a message."""
    next_offset: int
    """Behind all records that were converted or left out: the next fetch offset of a reader that received no
    message."""


def down_converting(data: Buffer, magic: int, first_offset: int, max_bytes: int) -> Steps[Converted]:
    """Convert the complete batches in `data` to a set of magic 0 or 1 of at most `max_bytes`, but at least one message.

    A batch that cannot be converted ends the set; if it is the first, UnsupportedCodec or CorruptBatch is raised.
    """
    out = bytearray()
    next_offset = first_offset
    batches = iter_batches(data)
    while True:
        try:
            batch = next(batches, None)
            if batch is None:
                break
            if not batch.is_control:
                part, its_end = yield from _convert(batch, magic, first_offset, max_bytes - len(out), not out)
                if its_end < 0:
                    break
                out += part
                next_offset = its_end
                if its_end < batch.next_offset:
                    break  # the set is full
        except (CorruptBatch, UnsupportedCodec):
            if not out:
                raise
            break
        next_offset = batch.next_offset
    return Converted(bytes(out), next_offset)


def truncate_message(message_set: bytes, max_bytes: int) -> bytes:
    """Truncate a set to `max_bytes` if its one message is larger: the reader then fetches with a larger limit. A
    message with a codec is returned as a whole, because a reader does not know how much a producer compressed into
    it."""
    if len(message_set) <= max_bytes or message_set[_ATTRIBUTES_AT] & _CODEC_BITS:
        return message_set
    return message_set[: max(0, max_bytes)]


def _convert(
    batch: RecordBatch, magic: int, first_offset: int, room: int, must: bool
) -> Steps[tuple[bytes | bytearray, int]]:
    """Return the messages of one batch and their next offset, which is -1 if they do not fit and `must` is not set."""
    codec = batch.compression
    if codec == ZSTD:
        raise UnsupportedCodec("a batch compressed by zstd")
    intact = batch.crc_ok() if batch.size_bytes <= BYTES_PER_STEP else (yield batch.crc_ok)
    if not intact:
        raise CorruptBatch(f"wrong checksum of the batch at offset {batch.base_offset}")
    if codec == NONE:
        plain = yield from _messages(batch, batch.plain_body(), magic, first_offset, room, must)
        return plain.entries, plain.next_offset
    if batch.size_bytes > room and not must:
        return b"", -1  # the wrapper is hardly smaller
    unpack = batch.plain_body
    body = unpack() if batch.size_bytes <= _INLINE_COMPRESSED_BYTES else (yield unpack)
    inner = yield from _messages(batch, body, magic)
    if inner.last_offset < first_offset:
        return b"", batch.next_offset  # the reader has all messages: compaction removed the end of the batch
    pack = partial(_pack, codec, magic, inner.entries)
    packed = pack() if len(inner.entries) <= _INLINE_PLAIN_BYTES else (yield pack)
    wrapper = bytearray()
    append_message(wrapper, inner.last_offset, magic, codec | _type_bit(batch, magic), inner.newest, None, packed)
    if len(wrapper) > room and not must:
        return b"", -1
    return wrapper, batch.next_offset


class _Messages(NamedTuple):
    entries: bytearray
    next_offset: int
    """Behind the batch, or that of the first record that does not fit; -1: none fits."""
    last_offset: int
    """Of those in `entries`; -1: there are none."""
    newest: int


def _type_bit(batch: RecordBatch, magic: int) -> int:
    return APPEND_TIME_BIT if magic and batch.timestamp_type == LOG_APPEND_TIME else 0


def _messages(
    batch: RecordBatch, body: bytes, magic: int, first_offset: int = 0, room: int = INT64_MAX, must: bool = True
) -> Steps[_Messages]:
    """Convert the records at `first_offset` or later, as many as there is `room` for, but at least one if `must`.
    Keys and values of earlier records are not checked. With magic 1, offsets in a wrapper count from the first one."""
    out = bytearray()
    last_offset, newest, zero = -1, NO_TIMESTAMP, 0
    append_time = batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else None
    base_offset, base_timestamp = batch.base_offset, batch.base_timestamp
    pack_head, pack_prefix, pack_size = MESSAGE_HEADS[magic].pack, PREFIX.pack, _INT32.pack
    attributes = _type_bit(batch, magic)
    relative = magic == 1 and batch.compression != NONE
    begun_bytes = 0
    count = 0
    for delta, step, has_key, start, end in record_heads(body, batch.record_count):
        count += 1
        if not count % ITEMS_PER_STEP or len(out) - begun_bytes > BYTES_PER_STEP:
            begun_bytes = len(out)
            yield None
        offset = base_offset + step
        if offset < first_offset:
            continue
        key = value = _NULL
        try:
            size = body[start] >> 1  # most sizes are a varint of one byte; all varints are zigzag
            position = start + 1
            if size >= 0x40:
                size, position = read_varint(body, start)
            if has_key:
                key = pack_size(size) + body[position : position + size]
                position += size
            size = body[position]
            position += 1
            if size < 0x80:
                size = (size >> 1) ^ -(size & 1)
            else:
                size, position = read_varint(body, position - 1)
            if size >= 0:
                value = pack_size(size) + body[position : position + size]
                position += size
            fills = position + 1 == end and not body[position]
        except IndexError:
            fills = False
        timestamp = base_timestamp + delta if append_time is None else append_time
        if not INT64_MIN <= timestamp <= INT64_MAX:
            timestamp = wrapped_int64(timestamp)
        # A record that does not end in a header count of 0 has headers, or its size is wrong.
        if not (fills or fits(body, start, end)) or offset > INT64_MAX:
            raise CorruptBatch(f"the record of offset {offset} has a length that does not fit, or cannot be there")
        if last_offset < 0 and relative:
            zero = offset
        message = pack_head(1, attributes, timestamp) + key + value if magic else pack_head(0, 0) + key + value
        if len(out) + len(message) + PREFIX.size > room and (out or not must):
            return _Messages(out, offset if out else -1, last_offset, newest)
        out += pack_prefix(offset - zero, len(message) + 4, checksum(message))
        out += message
        if timestamp > newest or last_offset < 0:
            newest = timestamp
        last_offset = offset
    return _Messages(out, batch.next_offset, last_offset, newest)


def _pack(codec: int, magic: int, inner: bytearray) -> bytes:
    packed = compress(codec, inner)
    return with_wrong_lz4_header_checksum(packed) if codec == LZ4 and magic == 0 else packed
