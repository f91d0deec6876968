"""Record batches of format 2 (KIP-98): a view that decodes its header only, and a builder.

Byte layout of a batch; all numbers big-endian. ``size_bytes`` below counts from byte 0.

===  =====  =====================  =================================================================================
 at  bytes  field                  meaning
===  =====  =====================  =================================================================================
  0      8  base offset            offset of the first record; the leader fills it in
  8      4  length                 bytes after this field
 12      4  partition leader epoch the leader fills it in
 16      1  magic                  2
 17      4  crc                    CRC-32C of everything from the attributes to the end
 21      2  attributes             bits 0-2 codec, 3 timestamp type (1: LogAppendTime), 4 transactional, 5 control,
                                   6 base timestamp is a delete horizon (KIP-534)
 23      4  last offset delta      of the last record, also if compaction removed that one
 27      8  base timestamp         ms
 35      8  max timestamp          ms
 43      8  producer id            -1: none
 51      2  producer epoch         -1: none
 53      4  base sequence          -1: none
 57      4  record count
 61         records                compressed as one block when a codec is set
===  =====  =====================  =================================================================================

A record: length varint, attributes int8, timestamp delta varlong, offset delta varint, key length varint (-1: null),
key, value length varint, value, header count varint, then per header key length, key, value length, value. Varints are
zigzag.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gregor.protocol.records.checksum import crc32c
from gregor.protocol.records.compression import DecompressionError, compress, decompress

Buffer = bytes | bytearray | memoryview

# base offset, length, leader epoch, magic, crc, attributes, last offset delta, base timestamp, max timestamp,
# producer id, producer epoch, base sequence, record count
HEADER = struct.Struct(">qiibIhiqqqhii")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_INT32 = struct.Struct(">i")
PRODUCER_FIELDS = struct.Struct(">qhi")
"""At PRODUCER_ID_AT: producer id, producer epoch, base sequence."""

RECORD_BATCH_OVERHEAD = 61
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43

# The length counts neither the base offset nor itself.
LOG_OVERHEAD = 12

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_TIMESTAMP = -1
CREATE_TIME = 0
LOG_APPEND_TIME = 1

# The default limit of the decompressed size of a batch. Producers limit that size to 1 MB by default, so that real
# batches are far below.
DEFAULT_MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024
# The limit of those who read stored batches in pieces, or in a process other than the broker's: a topic whose batches
# the broker does not decompress accepts them, whatever their decompressed size.
MAX_PLAIN_BYTES = 1024 * 1024 * 1024

_INT32_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class CorruptBatch(ValueError):
    """The bytes are not a record batch (or message set) that can be read."""


class Record(NamedTuple):
    """Header keys are text; bytes in them that are not UTF-8 survive as surrogates (``surrogateescape``)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class RecordBatch:
    """One batch within a buffer, at ``position``. Nothing is copied; the view is valid while the buffer is unchanged.

    The constructor checks that the batch is complete and has magic 2. ``crc_ok`` and ``records`` check the contents;
    this module does not check relations between header fields.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "position",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size_bytes",
    )

    base_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        if position < 0 or position + RECORD_BATCH_OVERHEAD > len(buffer):
            # Message sets of older formats can be shorter than a header: they are no torn batch.
            if position >= 0 and position + MAGIC_AT < len(buffer) and buffer[position + MAGIC_AT] != 2:
                raise CorruptBatch(f"magic {buffer[position + MAGIC_AT]}, not 2")
            raise CorruptBatch(f"{max(0, len(buffer) - position)} bytes are no record batch")
        (
            self.base_offset,
            length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = HEADER.unpack_from(buffer, position)
        if self.magic != 2:
            raise CorruptBatch(f"magic {self.magic}, not 2")
        size_bytes: int = length + LOG_OVERHEAD
        if size_bytes < RECORD_BATCH_OVERHEAD or position + size_bytes > len(buffer):
            raise CorruptBatch(f"a batch of {size_bytes} bytes, of which {len(buffer) - position} are there")
        self.buffer = buffer
        self.position = position
        self.size_bytes = size_bytes

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the last record; -1 without a producer. Sequences wrap from 2**31 - 1 to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & _INT32_MAX

    @property
    def compression(self) -> int:
        """Return the codec: 0 to 4, see ``gregor.protocol.records.compression``; 5 to 7 are unknown."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON_BIT)

    def memory(self) -> memoryview:
        """Return all bytes of the batch, not copied."""
        return memoryview(self.buffer)[self.position : self.position + self.size_bytes]

    def crc_ok(self) -> bool:
        start = self.position + ATTRIBUTES_AT
        checksum: int = crc32c(memoryview(self.buffer)[start : self.position + self.size_bytes])
        return checksum == self.crc

    def records(self, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
        """Iterate over the records, decompressed if necessary. CorruptBatch, also between two records, is the only
        error; the checksum is not verified."""
        return self.records_in(self.plain_body(max_decompressed_bytes))

    def plain_body(self, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
        """Return the bytes behind the header, decompressed if necessary. Raises CorruptBatch."""
        body = self.memory()[RECORD_BATCH_OVERHEAD:]
        codec = self.attributes & COMPRESSION_MASK
        if not codec:
            return bytes(body)
        try:
            return decompress(codec, body, max_decompressed_bytes)
        except DecompressionError as error:
            raise CorruptBatch(str(error)) from error

    def records_in(self, plain_body: bytes) -> Iterator[Record]:
        """Iterate over the records of this batch, whose decompressed body is given. Errors as those of `records`."""
        append_time = self.max_timestamp if self.attributes & TIMESTAMP_TYPE_BIT else None
        return _parse_records(plain_body, self.record_count, self.base_offset, self.base_timestamp, append_time)

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets {self.base_offset}..{self.last_offset}, {self.record_count} records, "
            f"{self.size_bytes} bytes, attributes {self.attributes:#x})"
        )


def iter_batches(buffer: Buffer) -> Iterator[RecordBatch]:
    """Yield all complete batches, in order, without a partial last one. Raises CorruptBatch where no batch can
    start."""
    position = 0
    end = len(buffer)
    while end - position >= LOG_OVERHEAD:
        size_bytes = _INT32.unpack_from(buffer, position + LENGTH_AT)[0] + LOG_OVERHEAD
        if size_bytes > end - position:
            return
        batch = RecordBatch(buffer, position)
        position += batch.size_bytes
        yield batch


def whole_batches_bytes(buffer: Buffer) -> int:
    """Return the size of all complete batches, by their lengths alone. Bytes that are no batch count as complete:
    `iter_batches` refuses them."""
    position, end = 0, len(buffer)
    while end - position >= LOG_OVERHEAD:
        size_bytes = _INT32.unpack_from(buffer, position + LENGTH_AT)[0] + LOG_OVERHEAD
        if size_bytes < LOG_OVERHEAD:
            return end
        if size_bytes > end - position:
            break
        position += size_bytes
    return position


def build_batch(
    records: Sequence[Record | tuple[bytes | None, bytes | None]],
    *,
    base_offset: int | None = None,
    timestamp_ms: int = NO_TIMESTAMP,
    compression: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: int = CREATE_TIME,
    level: int | None = None,
) -> bytearray:
    """Encode records as one batch, checksum included.

    A ``(key, value)`` pair gets the next offset and ``timestamp_ms``. A Record brings its own timestamp, headers and
    offset; offsets must rise, and the first is the base offset unless ``base_offset`` names a lower one. With
    LogAppendTime, ``timestamp_ms`` is the time of all records.
    """
    if not records:
        raise ValueError("a batch has at least one record")
    first = records[0]
    if base_offset is None:
        base_offset = first.offset if isinstance(first, Record) else 0
    base_timestamp = first.timestamp if isinstance(first, Record) else timestamp_ms
    body = bytearray()
    last_offset_delta, max_timestamp = _append_records(body, records, base_offset, base_timestamp, timestamp_ms)
    attributes = compression
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_BIT
        max_timestamp = timestamp_ms
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    if control:
        attributes |= CONTROL_BIT
    batch = bytearray(RECORD_BATCH_OVERHEAD)
    batch += compress(compression, body, level) if compression else body
    seal_batch(
        batch,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(records),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return batch


def _append_records(
    out: bytearray,
    records: Sequence[Record | tuple[bytes | None, bytes | None]],
    base_offset: int,
    base_timestamp: int,
    timestamp_ms: int,
) -> tuple[int, int]:
    """Write the records of a batch; return its last offset delta and its largest timestamp."""
    max_timestamp = base_timestamp
    delta = -1
    for record in records:
        if isinstance(record, Record):
            offset, timestamp, key, value, headers = record
            if offset - base_offset <= delta:
                raise ValueError(f"offset {offset} does not follow {base_offset + delta}")
            delta = offset - base_offset
        else:
            key, value = record
            timestamp, headers = timestamp_ms, []
            delta += 1
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        append_record(out, timestamp - base_timestamp, delta, key, value, headers)
    return delta, max_timestamp


def seal_batch(
    batch: bytearray,
    *,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> None:
    """Write header and checksum into a batch whose records stand behind RECORD_BATCH_OVERHEAD bytes."""
    struct.pack_into(">qiib", batch, 0, base_offset, len(batch) - LOG_OVERHEAD, leader_epoch, 2)
    _AFTER_CRC.pack_into(
        batch,
        ATTRIBUTES_AT,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    with memoryview(batch) as view:
        checksum = crc32c(view[ATTRIBUTES_AT:])
    struct.pack_into(">I", batch, CRC_AT, checksum)


def append_record(
    out: bytearray,
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> None:
    """Write one record behind those that `out` holds."""
    key_bytes = 0 if key is None else len(key)
    value_bytes = 0 if value is None else len(value)
    if not timestamp_delta and not headers and key is not None and key_bytes + value_bytes + offset_delta < _SMALL:
        varints = _SMALL_VARINTS
        position, key_length = varints[offset_delta], varints[key_bytes]
        value_length = _NULL_LENGTH if value is None else varints[value_bytes]
        size = 3 + len(position) + len(key_length) + key_bytes + len(value_length) + value_bytes
        out += b"".join((varints[size], b"\0\0", position, key_length, key, value_length, value or b"", b"\0"))
        return
    record = bytearray(1)  # attributes: none are in use
    if not INT64_MIN <= timestamp_delta <= INT64_MAX:
        timestamp_delta = wrapped_int64(timestamp_delta)
    append_varint(record, timestamp_delta)
    append_varint(record, offset_delta)
    _append_bytes(record, key)
    _append_bytes(record, value)
    append_varint(record, len(headers))
    for name, content in headers:
        _append_bytes(record, name.encode("utf-8", "surrogateescape"))
        _append_bytes(record, content)
    append_varint(out, len(record))
    out += record


def wrapped_int64(number: int) -> int:
    """Return a number wrapped to 64 bits: the delta of timestamps far apart overflows, on both ways, as in Java."""
    return ((number - INT64_MIN) & 0xFFFFFFFFFFFFFFFF) + INT64_MIN


def _append_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)  # zigzag of -1
    else:
        append_varint(out, len(data))
        out += data


def append_varint(out: bytearray, value: int) -> None:
    """Write a zigzag varint; the value has at most 64 bits."""
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)


def _varint(value: int) -> bytes:
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


_SMALL = 500
_SMALL_VARINTS = [_varint(value) for value in range(_SMALL + 12)]
_NULL_LENGTH = _varint(-1)
_ONE_BYTE_VARINTS = [(byte >> 1) ^ -(byte & 1) for byte in range(0x80)]


def _parse_records(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> Iterator[Record]:
    if count < 0:
        raise CorruptBatch(f"a record count of {count}")
    position = 0
    for index in range(count):
        try:
            record, position = _parse_record(data, position, base_offset, base_timestamp, append_time)
        except IndexError:
            raise CorruptBatch(f"the data ends within record {index} of {count}") from None
        yield record
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes follow the last of {count} records")


def _parse_record(
    data: bytes, position: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> tuple[Record, int]:
    """Return a record and its end. Raises IndexError if the data ends early, else CorruptBatch. A length below 0 is
    null, as in Java."""
    length, position = read_varint(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise CorruptBatch(f"a record of {length} bytes, of which {len(data) - position} are there")
    position += 1
    if data[position] < 0x80 and data[position + 1] < 0x80:  # most deltas have one byte
        timestamp_delta, offset_delta = _ONE_BYTE_VARINTS[data[position]], _ONE_BYTE_VARINTS[data[position + 1]]
        position += 2
    else:
        timestamp_delta, position = read_varint(data, position, 70)
        offset_delta, position = read_varint(data, position)
    key, position = _bytes(data, position, end)
    value, position = _bytes(data, position, end)
    header_count = data[position]
    position += 1
    headers: list[tuple[str, bytes | None]] = []
    if header_count:
        header_count, position = read_varint(data, position - 1)
        if header_count < 0:
            raise CorruptBatch(f"a header count of {header_count}")
        for _ in range(header_count):
            name, position = _bytes(data, position, end)
            if name is None:
                raise CorruptBatch("a header without a key")
            content, position = _bytes(data, position, end)
            headers.append((name.decode("utf-8", "surrogateescape"), content))
    if position != end:
        raise CorruptBatch(f"a record is {position - end:+} bytes off the size it names")
    offset = base_offset + offset_delta
    timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
    if not INT64_MIN <= timestamp <= INT64_MAX:
        timestamp = wrapped_int64(timestamp)
    if not 0 <= offset <= INT64_MAX:
        raise CorruptBatch(f"a record of offset {offset}")
    return Record(offset, timestamp, key, value, headers), position


def _bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length = data[position]
    if length < 0x80:  # most lengths have one byte
        position += 1
        length = (length >> 1) ^ -(length & 1)
    else:
        length, position = read_varint(data, position)
    if length < 0:
        return None, position
    stop = position + length
    if stop > end:
        raise CorruptBatch(f"a field of {length} bytes reaches beyond its record")
    return data[position:stop], stop


def read_varint(data: bytes, position: int, max_shift: int = 35) -> tuple[int, int]:
    """Read a zigzag varint of at most 5 bytes, or 10 with ``max_shift`` 70; return (value, end)."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    zigzag = byte & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            # Java's readers keep 32 or 64 bits and drop the higher bits of a last byte that is too large.
            zigzag &= 0xFFFFFFFF if max_shift == 35 else 0xFFFFFFFFFFFFFFFF
            return (zigzag >> 1) ^ -(zigzag & 1), position
        shift += 7
        if shift >= max_shift:
            raise CorruptBatch("a varint of too many bytes")
