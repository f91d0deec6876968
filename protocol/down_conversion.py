"""Record batches converted down to message sets, for consumers before 0.11. (Kafka's RecordsUtil.downConvert.)

- Without a codec every record becomes a message of its own; those before the offset that was asked for are left out.
- With one, a batch becomes one wrapper: its offset is that of its last message; offsets within are absolute with magic
  0, with magic 1 they count from the first message. Gaps that compaction made stay.
- Headers, producers and, with magic 0, timestamps get lost. Control batches have no message and are left out.
- zstd came after these formats: such a batch cannot be converted.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from protocol.compression import LZ4, NONE, ZSTD, compress, with_wrong_lz4_header_checksum
from protocol.message_sets import append_message
from protocol.records import (
    LOG_APPEND_TIME,
    TIMESTAMP_TYPE_BIT,
    Buffer,
    CorruptBatch,
    RecordBatch,
    iter_batches,
)
from protocol.slices import BYTES_PER_SLICE, RECORDS_PER_SLICE, Slices

_INLINE_COMPRESSED_BYTES = 2 * 1024
_INLINE_PLAIN_BYTES = 16 * 1024


class UnsupportedCodec(ValueError):
    """The first batch is compressed by a codec that no message set has."""


class Converted(NamedTuple):
    message_set: bytes
    """Whole messages only; empty if the batches hold nothing that a message set can have."""
    next_offset: int
    """Behind all that was converted or left out: where a reader goes on that got nothing."""


def down_converting(data: Buffer, magic: int, first_offset: int, max_bytes: int) -> Slices[Converted]:
    """Convert the whole batches in `data` to a set of magic 0 or 1 of at most `max_bytes`, but at least one message.

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
                    break  # a part of the batch filled the set
        except (CorruptBatch, UnsupportedCodec):
            if not out:
                raise
            break
        next_offset = batch.next_offset
    return Converted(bytes(out), next_offset)


def _convert(
    batch: RecordBatch, magic: int, first_offset: int, room: int, must: bool
) -> Slices[tuple[bytes | bytearray, int]]:
    """The messages of one batch and where they end; an end of -1: they do not fit, and `must` is not set."""
    codec = batch.compression
    if codec == ZSTD:
        raise UnsupportedCodec("a batch compressed by zstd")
    intact = batch.crc_ok() if batch.size_bytes <= BYTES_PER_SLICE else (yield batch.crc_ok)
    if not intact:
        raise CorruptBatch(f"wrong checksum of the batch at offset {batch.base_offset}")
    type_bit = TIMESTAMP_TYPE_BIT if magic and batch.timestamp_type == LOG_APPEND_TIME else 0
    if codec == NONE:
        return (yield from _plain(batch, magic, first_offset, room, must, type_bit))
    if batch.size_bytes > room and not must:
        return b"", -1  # the wrapper will hardly be smaller
    unpack = batch.plain_body
    body = unpack() if batch.size_bytes <= _INLINE_COMPRESSED_BYTES else (yield unpack)
    inner = bytearray()
    base = last = newest = -1
    count = sliced_bytes = 0
    for offset, timestamp, key, value, _ in batch.records_in(body):
        if base < 0:
            base, newest = offset, timestamp
        last = offset
        if timestamp > newest:
            newest = timestamp
        append_message(inner, offset - base if magic else offset, magic, type_bit, timestamp, key, value)
        count += 1
        if not count % RECORDS_PER_SLICE or len(inner) - sliced_bytes > BYTES_PER_SLICE:
            sliced_bytes = len(inner)
            yield None
    if not count:
        return b"", batch.next_offset
    pack = partial(_pack, codec, magic, inner)
    packed = pack() if len(inner) <= _INLINE_PLAIN_BYTES else (yield pack)
    wrapper = bytearray()
    append_message(wrapper, last, magic, codec | type_bit, newest, None, packed)
    if len(wrapper) > room and not must:
        return b"", -1
    return wrapper, batch.next_offset


def _plain(
    batch: RecordBatch, magic: int, first_offset: int, room: int, must: bool, type_bit: int
) -> Slices[tuple[bytes | bytearray, int]]:
    out = bytearray()
    sliced_bytes = 0
    for count, (offset, timestamp, key, value, _) in enumerate(batch.records_in(batch.plain_body()), 1):
        if not count % RECORDS_PER_SLICE or len(out) - sliced_bytes > BYTES_PER_SLICE:
            sliced_bytes = len(out)
            yield None
        if offset < first_offset:
            continue
        before = len(out)
        append_message(out, offset, magic, type_bit, timestamp, key, value)
        if len(out) > room and (before or not must):
            del out[before:]
            return out, offset if before else -1
    return out, batch.next_offset


def _pack(codec: int, magic: int, inner: bytearray) -> bytes:
    packed = compress(codec, inner)
    return with_wrong_lz4_header_checksum(packed) if codec == LZ4 and magic == 0 else packed
