"""The header of a record batch (magic 2), as storage reads it: without looking at the records.

    position  bytes
      0       8      base offset
      8       4      length: bytes that follow this field
     12       4      partition leader epoch
     16       1      magic, 2
     17       4      CRC-32C of everything after this field
     21       2      attributes: compression 0-2, append time 3, transactional 4, control 5, delete horizon 6
     23       4      last offset delta
     27       8      base timestamp
     35       8      max timestamp
     43       8      producer id
     51       2      producer epoch
     53       4      base sequence
     57       4      record count
     61              records

Base offset and leader epoch lie outside the checksum: a broker sets them in place. (Kafka's DefaultRecordBatch.)
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from gregor.protocol.records import batch as records

HEADER = records.HEADER
"""base offset, length, leader epoch, magic, crc, attributes, last offset delta, base timestamp, max timestamp,
producer id, producer epoch, base sequence, record count."""

PLACE = Struct(">qii")
"""What a leader sets: base offset, (length,) leader epoch."""

STAMP = Struct(">Ih")
"""At 17: crc and attributes."""

CRC_POSITION = records.CRC_AT
CRC_START = records.ATTRIBUTES_AT
MAX_TIMESTAMP_POSITION = records.MAX_TIMESTAMP_AT
HEADER_BYTES = records.RECORD_BATCH_OVERHEAD
LENGTH_OVERHEAD = records.LOG_OVERHEAD
"""A batch is this much larger than its length field says."""

APPEND_TIME_BIT = records.TIMESTAMP_TYPE_BIT
TRANSACTIONAL_BIT = records.TRANSACTIONAL_BIT
CONTROL_BIT = records.CONTROL_BIT
CODEC_MASK = records.COMPRESSION_MASK
MAX_CODEC = 4

MAX_RELATIVE_OFFSET = 0x7FFFFFFF
SEQUENCE_MASK = 0x7FFFFFFF
"""Sequence numbers count to 2^31 - 1 and go on with 0."""

NO_TIMESTAMP = records.NO_TIMESTAMP

ScannedBatch = tuple[int, int, int, int, int, int, int, int, int, int]
"""position, size in bytes, base offset, last offset, leader epoch, attributes, max timestamp, producer id,
producer epoch, base sequence. (A plain tuple: naming its parts would double the cost of a scan.)"""


def runs_of_batches(view: memoryview, most: int) -> Iterator[memoryview]:
    """The view in parts of about `most` whole batches, one after the other; what is no batch is in the last part. An
    empty view is one part."""
    start, limit = 0, len(view)
    while limit - start > most * HEADER_BYTES:  # else there cannot be more
        at = start
        for _ in range(most):
            length = int.from_bytes(view[at + 8 : at + 12], signed=True)
            if length < HEADER_BYTES - LENGTH_OVERHEAD:
                at = limit
                break
            at += LENGTH_OVERHEAD + length
        if at >= limit:
            break
        yield view[start:at]
        start = at
    yield view[start:]
