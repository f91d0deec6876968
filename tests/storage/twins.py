"""Slow, obvious twins of what storage does fast: what is valid in a file, and which indexes belong to it."""

from __future__ import annotations

import struct

from crc32c import crc32c

from gregor.protocol.records.batch import CorruptBatch, RecordBatch, iter_batches

ValidBatch = tuple[int, int, int, RecordBatch]
"""start and end position, next offset, the batch."""


def valid_batches(data: bytes, base_offset: int = 0) -> list[ValidBatch]:
    """The whole, ascending batches with a right checksum at the start of a segment's file."""
    found: list[ValidBatch] = []
    position, next_offset = 0, base_offset
    while position + 61 <= len(data):
        length = int.from_bytes(data[position + 8 : position + 12], signed=True)
        end = position + 12 + length
        if length < 49 or end > len(data) or data[position + 16] != 2:
            break
        if crc32c(data[position + 21 : end]) != int.from_bytes(data[position + 17 : position + 21]):
            break
        try:
            batch = RecordBatch(data[position:end])
        except CorruptBatch:
            break
        if batch.base_offset < next_offset or batch.last_offset - base_offset > 2**31 - 1:
            break
        next_offset = batch.last_offset + 1
        found.append((position, end, next_offset, batch))
        position = end
    return found


def indexes_of(data: bytes, interval_bytes: int, base_offset: int = 0) -> tuple[bytes, bytes]:
    """The .index and .timeindex of a segment that was written in one go and closed: Kafka's LogSegment.append and
    onBecomeInactiveSegment over the batches of a file."""
    index, time_index = b"", b""
    position, since_entry = 0, 0
    max_timestamp, max_timestamp_offset = -1, base_offset
    last_indexed = -1
    for batch in iter_batches(data):
        if batch.max_timestamp > max_timestamp:
            max_timestamp, max_timestamp_offset = batch.max_timestamp, batch.last_offset
        if since_entry > interval_bytes:
            index += struct.pack(">ii", batch.last_offset - base_offset, position)
            if max_timestamp > last_indexed:
                time_index += struct.pack(">qi", max_timestamp, max_timestamp_offset - base_offset)
                last_indexed = max_timestamp
            since_entry = 0
        position += batch.size_bytes
        since_entry += batch.size_bytes
    if max_timestamp > last_indexed:
        time_index += struct.pack(">qi", max_timestamp, max_timestamp_offset - base_offset)
    return index, time_index
