"""Positions of the records of a batch, with the properties by which compaction retains or removes them. Compaction
copies records as they are, without an object for each.

The layout is that of ``gregor.protocol.records.batch``; the tests compare both with a simple implementation.
"""

from __future__ import annotations

from gregor.protocol.records.batch import CorruptBatch, append_varint, read_varint, wrapped_int64

RecordSpan = tuple[int, int, int, int, int, bytes | None, bool]
"""start and end of the record, position behind its timestamp delta, timestamp delta, offset delta, key, whether it has
a value. (A plain tuple, because there is one for each record.)"""


def record_spans(data: bytes, count: int) -> list[RecordSpan]:
    """Return the spans of ``count`` records in their plain bytes; CorruptBatch is the only error. Headers are
    skipped."""
    if count < 0:
        raise CorruptBatch(f"a record count of {count}")
    spans: list[RecordSpan] = []
    position = 0
    limit = len(data)
    try:
        for _ in range(count):
            start = position
            byte = data[position]
            position += 1
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
            else:
                length, position = read_varint(data, position - 1)
            end = position + length
            if length < 0 or end > limit:
                raise CorruptBatch(f"a record of {length} bytes, of which {limit - position} are there")
            position += 1  # attributes
            byte = data[position]
            position += 1
            if byte < 0x80:
                timestamp_delta = (byte >> 1) ^ -(byte & 1)
            else:
                timestamp_delta, position = read_varint(data, position - 1, 70)
            rest = position
            byte = data[position]
            position += 1
            if byte < 0x80:
                offset_delta = (byte >> 1) ^ -(byte & 1)
            else:
                offset_delta, position = read_varint(data, position - 1)
            byte = data[position]
            position += 1
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
            else:
                length, position = read_varint(data, position - 1)
            key = None
            if length >= 0:
                stop = position + length
                if stop > end:
                    raise CorruptBatch(f"a key of {length} bytes reaches beyond its record")
                key = data[position:stop]
                position = stop
            # Only the sign of the value's length matters: an odd zigzag number is negative, which means null.
            has_value = not data[position] & 1
            if position >= end:
                raise CorruptBatch("a record ends before its value")
            spans.append((start, end, rest, timestamp_delta, offset_delta, key, has_value))
            position = end
    except IndexError:
        raise CorruptBatch(f"the data ends within record {len(spans)} of {count}") from None
    if position != limit:
        raise CorruptBatch(f"{limit - position} bytes follow the last of {count} records")
    return spans


def with_timestamp_delta(data: bytes, span: RecordSpan, timestamp_delta: int) -> bytes:
    """Return the bytes of a record with another timestamp delta."""
    _, end, rest, *_ = span
    body = b"\0" + varint(timestamp_delta) + data[rest:end]  # attributes: none are in use
    return varint(len(body)) + body


def varint(value: int) -> bytes:
    """Return a zigzag varint of the lower 64 bits of a value, as in Java."""
    out = bytearray()
    append_varint(out, wrapped_int64(value))
    return bytes(out)
