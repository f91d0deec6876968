"""The batches and records of a .log file as lines of text, the same lines as those of Apache Kafka's DumpLogSegments.

A file is read batch by batch, so that a large file needs little memory, and a file that a broker writes can be read.
"""

from __future__ import annotations

import codecs
import struct
from binascii import crc32
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gregor.broker.cli.errors import CommandError
from gregor.protocol.records.batch import (
    HEADER,
    LOG_OVERHEAD,
    MAX_PLAIN_BYTES,
    RECORD_BATCH_OVERHEAD,
    Record,
    RecordBatch,
)
from gregor.protocol.records.compression import CODEC_NAMES
from gregor.protocol.records.control import control_type, parse_end_marker
from gregor.protocol.records.message_sets import Message, iter_messages

if TYPE_CHECKING:
    from gregor.storage.fs.files import File

PREFIX_BYTES = 17
"""The common start of all formats: offset int64, size int32, crc or leader epoch int32, magic int8."""

MIN_MESSAGE_BYTES = 14
"""The size field of a message of format 0 without key and value."""

RECORD_INDENT = "|"
MAX_SEQUENCE = 2**31 - 1

_PREFIX = struct.Struct(">qiib")
_OLD_CRC = struct.Struct(">I")
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

Text = Callable[[bytes], str]
Contents = tuple[str | None, str | None]
"""Key and value of a record as they are printed; None is not printed."""
Decoder = Callable[[Record], Contents]


class Shown(NamedTuple):
    """The parts of a .log file to print."""

    records: bool = False
    contents: bool = False
    metadata: bool = True
    """Offset, time and sizes of each record; without them, control records are not printed either."""
    max_bytes: int | None = None


class LogComplaints(NamedTuple):
    """The problems of a .log file."""

    gaps: list[tuple[int, int]]
    """Offsets that are not consecutive, as usual in compacted topics."""
    damaged: bool


class Entry(NamedTuple):
    """One batch, or one message of the old formats with its inner messages."""

    position: int
    data: bytes
    magic: int


def read_entries(file: File, start: int = 0, end: int | None = None) -> Iterator[Entry]:
    """Yield the complete entries between two positions; raise CommandError where no entry can start."""
    end = file.size_bytes() if end is None else min(end, file.size_bytes())
    position = start
    while position + PREFIX_BYTES <= end:
        _, length, _, magic = _PREFIX.unpack(file.read(PREFIX_BYTES, position))
        if length < MIN_MESSAGE_BYTES or (magic == 2 and length < RECORD_BATCH_OVERHEAD - LOG_OVERHEAD):
            raise CommandError(
                f"{file.path}: no record batch starts at position {position} (its size field is {length})."
            )
        if magic not in (0, 1, 2):
            raise CommandError(f"{file.path}: a record batch of unknown format {magic} at position {position}.")
        size_bytes = length + LOG_OVERHEAD
        if position + size_bytes > end:
            return
        data = file.read(size_bytes, position)
        if len(data) < size_bytes:
            return
        yield Entry(position, data, magic)
        position += size_bytes


def dump_log(file: File, shown: Shown, decoder: Decoder, write: Callable[[str], object]) -> LogComplaints:
    """Write the lines of one .log file, each with its line end; raise CommandError and CorruptBatch."""
    gaps: list[tuple[int, int]] = []
    damaged = False
    end = 0
    last_offset = -1
    for entry in read_entries(file, 0, shown.max_bytes):
        end = entry.position + len(entry.data)
        batch = RecordBatch(entry.data) if entry.magic == 2 else None
        valid = batch.crc_ok() if batch is not None else _old_crc_ok(entry.data)
        damaged = damaged or not valid
        write(_batch_line(batch, entry, valid) if batch is not None else _old_line(entry, valid))
        if not shown.records:
            continue
        lines = _records_of(batch, shown, decoder) if batch is not None else _old_messages(entry, shown, decoder)
        for offset, line in lines:
            if last_offset >= 0 and offset != last_offset + 1:
                gaps.append((last_offset, offset))
            last_offset = offset
            write(line)
    trailing_bytes = file.size_bytes() - end
    if trailing_bytes > 0 and shown.max_bytes is None:
        damaged = True
        write(f"Found {trailing_bytes} invalid bytes at the end of {file.path.rpartition('/')[2]}\n")
    return LogComplaints(gaps, damaged)


def contents_by(key_text: Text, value_text: Text) -> Decoder:
    """Return a decoder that converts keys and values by one function each."""

    def contents(record: Record) -> Contents:
        key, value = record.key, record.value
        return None if key is None else key_text(key), None if value is None else value_text(value)

    return contents


def _utf8(data: bytes) -> str:
    """Decode UTF-8, with as many U+FFFD for invalid bytes as in Java."""
    return data.decode(errors=_AS_JAVA)


def _number(size_bytes: int) -> Text:
    def text(data: bytes) -> str:
        if len(data) < size_bytes:
            raise CommandError(
                f"{len(data)} bytes of a key or value are not a number of {size_bytes}; choose another decoder class."
            )
        return str(int.from_bytes(data[:size_bytes], signed=True))

    return text


TEXTS: dict[str, Text] = {"StringDecoder": _utf8, "IntegerDecoder": _number(4), "LongDecoder": _number(8)}
"""The decoders by the last part of the class name."""

plain_contents = contents_by(_utf8, _utf8)


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """Replace an encoded surrogate (ED A0..BF, one more byte) by one character, as Java; Python replaces each byte."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, start = error.object, error.start
    if data[start] == 0xED and 0xA0 <= int.from_bytes(data[start + 1 : start + 2]) <= 0xBF:
        third = data[start + 2 : start + 3]
        return "\ufffd", start + (3 if third and third[0] >> 6 == 0b10 else 2)
    return "\ufffd", error.end


_AS_JAVA = "gregor-as-java"
codecs.register_error(_AS_JAVA, _replace_as_java)


def _batch_line(batch: RecordBatch, entry: Entry, valid: bool) -> str:
    horizon = f"OptionalLong[{batch.base_timestamp}]" if batch.has_delete_horizon else "OptionalLong.empty"
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.record_count} "
        f"baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} producerId: {batch.producer_id} "
        f"producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.leader_epoch} "
        f"isTransactional: {_flag(batch.is_transactional)} isControl: {_flag(batch.is_control)} "
        f"deleteHorizonMs: {horizon} position: {entry.position} "
        f"{_TIMESTAMP_TYPES[batch.timestamp_type]}: {batch.max_timestamp} size: {batch.size_bytes} magic: 2 "
        f"compresscodec: {_codec_name(batch.compression)} crc: {batch.crc} isvalid: {_flag(valid)}\n"
    )


def _records_of(batch: RecordBatch, shown: Shown, decoder: Decoder) -> Iterator[tuple[int, str]]:
    time_name = _TIMESTAMP_TYPES[batch.timestamp_type]
    control = batch.is_control
    for record in batch.records(MAX_PLAIN_BYTES):
        parts = []
        if shown.metadata:
            sequence = -1
            if batch.base_sequence >= 0:
                sequence = (batch.base_sequence + record.offset - batch.base_offset) & MAX_SEQUENCE
            names = ",".join(name for name, _ in record.headers)
            parts += [f"offset: {record.offset} {time_name}: {record.timestamp} {_sizes(record)}"]
            parts += [f"sequence: {sequence} headerKeys: [{names}]"]
            if control:
                parts.append(_control(record))
        if shown.contents and not control:
            parts += _contents(record, decoder)
        yield record.offset, _record_line(parts)


def _record_line(parts: list[str]) -> str:
    """Return the line of a record; an empty line if no part of it is printed."""
    return f"{RECORD_INDENT} {' '.join(parts)}\n" if parts else "\n"


def _contents(record: Record, decoder: Decoder) -> list[str]:
    key, payload = decoder(record)
    return ([] if key is None else [f"key: {key}"]) + ([] if payload is None else [f"payload: {payload}"])


def _sizes(record: Record) -> str:
    key_bytes = -1 if record.key is None else len(record.key)
    return f"keySize: {key_bytes} valueSize: {-1 if record.value is None else len(record.value)}"


def _control(record: Record) -> str:
    """Describe a control record. Raises CorruptBatch."""
    marker = parse_end_marker(record)
    if marker is None:
        return f"controlType: UNKNOWN({control_type(record)})"
    return f"endTxnMarker: {'COMMIT' if marker.commit else 'ABORT'} coordinatorEpoch: {marker.coordinator_epoch}"


def _old_line(entry: Entry, valid: bool) -> str:
    """Return the line of a message of format 0 or 1; a wrapper has the offset of its last inner message."""
    offset, size = struct.unpack_from(">qi", entry.data)
    attributes = entry.data[PREFIX_BYTES]
    time_name, timestamp = "NoTimestampType", -1
    if entry.magic == 1:
        time_name = _TIMESTAMP_TYPES[attributes >> 3 & 1]
        timestamp = int.from_bytes(entry.data[18:26], signed=True)
    return (
        f"offset: {offset} position: {entry.position} {time_name}: {timestamp} size: {size + LOG_OVERHEAD} "
        f"magic: {entry.magic} compresscodec: {_codec_name(attributes & 7)} "
        f"crc: {_OLD_CRC.unpack_from(entry.data, LOG_OVERHEAD)[0]} isvalid: {_flag(valid)}\n"
    )


def _old_messages(entry: Entry, shown: Shown, decoder: Decoder) -> Iterator[tuple[int, str]]:
    for message in iter_messages(entry.data):
        record = Record(message.offset, message.timestamp, message.key, message.value, [])
        parts = []
        if shown.metadata:
            time_name = _TIMESTAMP_TYPES[message.timestamp_type] if entry.magic else "NoTimestampType"
            parts.append(f"offset: {record.offset} {time_name}: {record.timestamp} {_sizes(record)}")
            crc = _inner_crc(message) if message.codec else _OLD_CRC.unpack_from(entry.data, LOG_OVERHEAD)[0]
            parts.append(f"isValid: true crc: {crc}")
        if shown.contents:
            parts += _contents(record, decoder)
        yield record.offset, _record_line(parts)


def _inner_crc(message: Message) -> int:
    """Return the checksum of a message in a wrapper, whose attributes are 0."""
    head = bytes([message.magic, 0]) + (message.timestamp.to_bytes(8, signed=True) if message.magic else b"")
    return crc32(head + _sized(message.key) + _sized(message.value))


def _sized(data: bytes | None) -> bytes:
    return (-1).to_bytes(4, signed=True) if data is None else len(data).to_bytes(4) + data


def _old_crc_ok(data: bytes) -> bool:
    checksum: int = _OLD_CRC.unpack_from(data, LOG_OVERHEAD)[0]
    return crc32(data[LOG_OVERHEAD + 4 :]) == checksum


def max_timestamp(entry: Entry) -> int:
    """Return the largest timestamp of the records; -1 if they have none."""
    if entry.magic == 2:
        return max((record.timestamp for record in RecordBatch(entry.data).records(MAX_PLAIN_BYTES)), default=-1)
    return max((message.timestamp for message in iter_messages(entry.data)), default=-1)


def last_offset_of(entry: Entry) -> int:
    """Return the offset of the last record."""
    if entry.magic == 2:
        header = HEADER.unpack_from(entry.data)
        return int(header[0] + header[6])
    return int.from_bytes(entry.data[:8], signed=True)


def _codec_name(number: int) -> str:
    return CODEC_NAMES[number] if number < len(CODEC_NAMES) else f"unknown({number})"


def _flag(value: bool) -> str:
    return "true" if value else "false"
