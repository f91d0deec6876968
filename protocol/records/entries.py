"""Offset, key and value of the records of a batch, for a reader of whole logs that needs nothing else of them."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from gregor.protocol.records.batch import (
    COMPRESSION_MASK,
    INT64_MAX,
    LOG_OVERHEAD,
    RECORD_BATCH_OVERHEAD,
    RecordBatch,
)

Entry = tuple[int, bytes | None, bytes | None]

# Base offset, length; skips the leader epoch; magic; skips the CRC; attributes, last offset delta; skips timestamps and
# producer; record count.
_HEAD = Struct(">qi4xb4xhi30xi")
_MAX_DELTA = 0x3F
"""The largest offset delta that is a varint of one byte."""


def entries_of(batch: RecordBatch) -> Iterable[Entry]:
    """Return offset, key and value of each record; errors as those of `RecordBatch.records`. The usual batches of
    internal topics, without headers and large records, need half the time of `records`."""
    if not batch.attributes & COMPRESSION_MASK and 0 <= batch.base_offset <= INT64_MAX - _MAX_DELTA:
        view = memoryview(batch.buffer)
        body = bytes(view[batch.position + RECORD_BATCH_OVERHEAD : batch.position + batch.size_bytes])
        usual = _usual_entries(body, 0, len(body), batch.record_count, batch.base_offset)
        if usual is not None:
            return usual
    return ((record.offset, record.key, record.value) for record in batch.records())


def plain_entries(data: bytes, position: int) -> tuple[int, int, list[Entry]] | None:
    """Return the size of the batch at `position`, the offset after it, and its entries; None if it is not there as a
    whole, has an attribute (a codec, a transaction, a marker) or records that are not the usual ones. A log of many
    batches of one record is read in a third of the time that RecordBatch needs."""
    body = position + RECORD_BATCH_OVERHEAD
    if body > len(data):
        return None
    base_offset, length, magic, attributes, last_delta, count = _HEAD.unpack_from(data, position)
    end = position + LOG_OVERHEAD + length
    if (
        magic != 2
        or attributes
        or not body < end <= len(data)
        or last_delta < 0
        or not 0 <= base_offset <= INT64_MAX - _MAX_DELTA
    ):
        return None
    entries = _usual_entries(data, body, end, count, base_offset)
    return None if entries is None else (end - position, base_offset + last_delta + 1, entries)


def _usual_entries(data: bytes, position: int, data_end: int, count: int, base_offset: int) -> list[Entry] | None:
    """Parse records with a key, without headers, whose lengths have at most two bytes and whose deltas have one; None
    if one is different or broken.

    length varint | attributes int8 | timestamp delta varint | offset delta varint | key length varint | key |
    value length varint | value | header count varint

    A varint is odd where its number is negative. A length that has a third byte is read as one that reaches beyond the
    end of its record, where the header count is not found.
    """
    entries: list[Entry] = []
    try:
        for _ in range(count):
            length = data[position]
            position += 1
            if length >= 0x80:
                length = length & 0x7F | data[position] << 7
                position += 1
            end = position + (length >> 1)
            delta, size = data[position + 2], data[position + 3]
            if length & 1 or length >= 0x4000 or data[position + 1] >= 0x80 or delta >= 0x80 or (delta | size) & 1:
                return None
            position += 4
            if size >= 0x80:
                size = size & 0x7F | data[position] << 7
                position += 1
            stop = position + (size >> 1)
            key, size = data[position:stop], data[stop]
            position = stop + 1
            value = None
            if size != 1:
                if size & 1:
                    return None
                if size >= 0x80:
                    size = size & 0x7F | data[position] << 7
                    position += 1
                stop = position + (size >> 1)
                value = data[position:stop]
                position = stop
            if data[position] or position + 1 != end:
                return None
            position = end
            entries.append((base_offset + (delta >> 1), key, value))
    except IndexError:
        return None
    return entries if position == data_end and count >= 0 else None
