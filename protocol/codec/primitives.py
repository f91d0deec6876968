"""Functions that the generated codecs call in rare cases: varints of several bytes, unknown tags, errors.

Unsigned varints (KIP-482) have seven bits in a byte, lowest first; the top bit is set if another byte follows. They
have at most five bytes and are at most 2^32 - 1. Longer encodings of a small number are legal, as in Apache Kafka.
A compact length is an unsigned varint of length + 1, and 0 means null.
"""

from __future__ import annotations

import struct as structs
from typing import NoReturn, Protocol

from gregor.protocol.errors import MalformedMessage, UnsupportedField

Buffer = bytes | bytearray | memoryview

# The longest string that Kafka sends in either form.
MAX_STRING_BYTES = 0x7FFF


class FileRegion(Protocol):
    """Record bytes in a file: the encoder writes their length, the sender inserts them from the file."""

    @property
    def size_bytes(self) -> int: ...


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return (value, end position)."""
    byte = buffer[position]
    if byte < 128:
        return byte, position + 1
    return read_uvarint_rest(buffer, position + 1, byte)


def read_uvarint_rest(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Return (value, end position) of a varint whose first byte, at least 128, is already read."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise MalformedMessage("a varint of more than 32 bits")


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_string_length(out: bytearray, compact_length: int) -> None:
    """Write the compact length (its one is already added) of a string of 127 bytes or more."""
    if compact_length > MAX_STRING_BYTES + 1:
        raise ValueError(f"a string of {compact_length - 1} bytes is longer than {MAX_STRING_BYTES}")
    write_uvarint(out, compact_length)


def skip_tags(buffer: Buffer, position: int, count: int, limit: int) -> int:
    """Skip a non-empty tag section whose first byte, the count, is already read; return its end."""
    if count > 127:
        count, position = read_uvarint_rest(buffer, position, count)
    if count * 2 > limit - position:
        raise bad_count("tags", count, limit - position)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size_bytes, position = read_uvarint(buffer, position)
        position += size_bytes
        if position > limit:
            raise bad_length("a tag", size_bytes)
    return position


def bad_length(field: str, length: int) -> MalformedMessage:
    return MalformedMessage(f"{field}: length {length} is negative or runs past the end")


def bad_count(field: str, count: int, bytes_left: int) -> MalformedMessage:
    return MalformedMessage(f"{field}: {count} elements cannot lie in {bytes_left} bytes")


def bad_tag(field: str) -> MalformedMessage:
    return MalformedMessage(f"{field}: the tag's size is not that of its value")


def unsupported(field: str, version: int) -> UnsupportedField:
    return UnsupportedField(f"{field} has a value that version {version} cannot carry")


def null_refused(field: str, version: int) -> UnsupportedField:
    return UnsupportedField(f"{field} may not be null in version {version}")


def region_refused() -> TypeError:
    return TypeError("records that lie in a file can only be encoded with a list of splices")


def malformed(name: str, error: Exception) -> NoReturn:
    """Raise MalformedMessage, with the message's name and version, for any error of a decoder."""
    cause = None if isinstance(error, MalformedMessage) else error
    raise MalformedMessage(f"{name}: {error}") from cause


def undo(out: bytearray, start: int, splices: list[tuple[int, FileRegion]] | None) -> None:
    """Remove the output of an encoder from `start` on; earlier frames before it are kept."""
    del out[start:]
    if splices:
        splices[:] = [splice for splice in splices if splice[0] <= start]


def value_refused(name: str, error: BaseException) -> None:
    """Raise ValueError for a value that does not fit its field; return for all other errors."""
    if isinstance(error, structs.error):
        raise ValueError(f"{name}: {error}") from error
