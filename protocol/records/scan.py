"""Checks of the records of a batch before a leader appends it, without an object for each record.

The layout of a record is in records.batch. `record_heads` skips keys, values and headers; `fits` checks their lengths.
"""

from __future__ import annotations

from collections.abc import Iterator

from gregor.protocol.records.batch import CorruptBatch, read_varint

_MAX_HEAD_BYTES = 32
"""Length 5, attributes 1, timestamp delta 10, offset delta 5, and the first byte of the key's length, rounded up."""

Head = tuple[int, int, bool, int, int]
"""timestamp delta, offset delta, whether it has a key, position of the key's length, end of the record."""


def record_heads(data: bytes, count: int) -> Iterator[Head]:
    """Yield the heads of `count` records in the plain bytes of a batch. Raises CorruptBatch, also between two heads, if
    there are fewer records, or more bytes than theirs."""
    if count < 0:
        raise CorruptBatch(f"a record count of {count}")
    position = 0
    end_of_data = len(data)
    for index in range(count):
        try:
            # A byte below 0x80 is a complete varint; most varints have one byte.
            length = data[position]
            position += 1
            if length < 0x80:
                length = (length >> 1) ^ -(length & 1)
            else:
                length, position = read_varint(data, position - 1)
            end = position + length
            if length < 0 or end > end_of_data:
                raise CorruptBatch(f"record {index} of {length} bytes, of which {end_of_data - position} are there")
            timestamp_delta = data[position + 1]  # after the attributes
            position += 2
            if timestamp_delta < 0x80:
                timestamp_delta = (timestamp_delta >> 1) ^ -(timestamp_delta & 1)
            else:
                timestamp_delta, position = read_varint(data, position - 1, 70)
            offset_delta = data[position]
            position += 1
            if offset_delta < 0x80:
                offset_delta = (offset_delta >> 1) ^ -(offset_delta & 1)
            else:
                offset_delta, position = read_varint(data, position - 1)
            # An odd zigzag number is negative: no key.
            head = timestamp_delta, offset_delta, not data[position] & 1, position, end
        except IndexError:
            raise CorruptBatch(f"the data ends within record {index} of {count}") from None
        if position >= end:
            raise CorruptBatch(f"record {index} ends before its key")
        yield head
        position = end
    if position != end_of_data:
        raise CorruptBatch(f"{end_of_data - position} bytes follow the last of {count} records")


class HeadStream:
    """Reads heads of records whose plain bytes come in pieces. Of a record only its head is kept, however long it
    is."""

    __slots__ = ("_left", "_rest", "_skipped_bytes")

    def __init__(self, count: int) -> None:
        """Raises CorruptBatch for a negative count."""
        if count < 0:
            raise CorruptBatch(f"a record count of {count}")
        self._left = count
        self._rest = b""
        """The beginning of a head."""
        self._skipped_bytes = 0
        """Bytes of the last record that are still to come."""

    def heads(self, piece: bytes, *, is_last: bool = False) -> Iterator[tuple[int, int]]:
        """Yield timestamp delta and offset delta of each record whose head ends in this piece. Raises CorruptBatch,
        also between two of them, where `record_heads` does. Must be exhausted before the next piece."""
        skipped = min(self._skipped_bytes, len(piece))
        self._skipped_bytes -= skipped
        data = self._rest + piece[skipped:]
        position, size = 0, len(data)
        while self._left and (size - position >= _MAX_HEAD_BYTES or (is_last and position < size)):
            try:
                length, position = read_varint(data, position)
                end = position + length
                timestamp_delta, position = read_varint(data, position + 1, 70)
                offset_delta, position = read_varint(data, position)
            except IndexError:
                raise CorruptBatch(f"the data ends within a record, and {self._left} are missing") from None
            if position >= end:
                raise CorruptBatch("a record ends before its key")
            yield timestamp_delta, offset_delta
            self._left -= 1
            position = end
        self._skipped_bytes += max(0, position - size)
        self._rest = data[position:]
        if not self._left and self._rest:
            raise CorruptBatch(f"{len(self._rest)} bytes follow the last record")
        if is_last and (self._left or self._skipped_bytes):
            raise CorruptBatch(f"the data ends early: {self._left} records are missing")


def fits(data: bytes, position: int, end: int) -> bool:
    """Return whether key, value and headers, from the key's length at `position` on, fill a record exactly to its
    `end`. Lengths below 0 mean null, except that of a header's name. (Kafka's DefaultRecord.readFrom.)"""
    try:
        for _ in range(2):
            length, position = read_varint(data, position)
            position += max(0, length)
        headers, position = read_varint(data, position)
        if headers < 0:
            return False
        for _ in range(headers):
            length, position = read_varint(data, position)
            if length < 0 or position + length > end:
                return False
            length, position = read_varint(data, position + length)
            position += max(0, length)
            if position > end:
                return False
    except (IndexError, CorruptBatch):
        return False
    return position == end
