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

from struct import Struct

HEADER = Struct(">qiibIhiqqqhii")
"""base offset, length, leader epoch, magic, crc, attributes, last offset delta, base timestamp, max timestamp,
producer id, producer epoch, base sequence, record count."""

PLACE = Struct(">qii")
"""What a leader sets: base offset, (length,) leader epoch."""

STAMP = Struct(">Ih")
"""At 17: crc and attributes."""

CRC_POSITION = 17
CRC_START = 21
MAX_TIMESTAMP_POSITION = 35
HEADER_BYTES = 61
LENGTH_OVERHEAD = 12
"""A batch is this much larger than its length field says."""

APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
CODEC_MASK = 0x07
MAX_CODEC = 4

MAX_RELATIVE_OFFSET = 0x7FFFFFFF
SEQUENCE_MASK = 0x7FFFFFFF
"""Sequence numbers count to 2^31 - 1 and go on with 0."""

NO_TIMESTAMP = -1

ScannedBatch = tuple[int, int, int, int, int, int, int, int, int, int]
"""position, size in bytes, base offset, last offset, leader epoch, attributes, max timestamp, producer id,
producer epoch, base sequence. (A plain tuple: naming its parts would double the cost of a scan.)"""
