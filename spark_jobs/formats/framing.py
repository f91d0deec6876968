"""The bytes that a schema registry's serializers put before a value (Confluent's wire format).

magic byte   1 byte, 0
schema id    4 bytes, big-endian
message      Protobuf only: the number of indexes and the indexes that lead to the message in the file of the
             schema, from the outermost to the innermost, each as a zigzag varint; a single 0 stands for [0]
"""

from __future__ import annotations

FRAME_BYTES = 5
NO_FRAME = "the value does not begin with the five bytes of a schema registry"
MAX_VARINT_BYTES = 5
MAX_MESSAGE_DEPTH = 100
"""More than the compiler of Protobuf permits; a count above it is no count."""


class NotDecodable(ValueError):
    """A value that is not in the format. It is a dead letter, and does not end the job."""


def schema_id_of(value: bytes) -> int:
    """Return the id of the schema of a framed value."""
    if len(value) < FRAME_BYTES or value[0]:
        raise NotDecodable(NO_FRAME)
    return int.from_bytes(value[1:FRAME_BYTES])


def message_indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes of the message of a framed Protobuf value, and the position of the message."""
    count, position = _index(value, FRAME_BYTES)
    if count == 0:
        return (0,), position
    if not 0 < count <= MAX_MESSAGE_DEPTH:
        raise NotDecodable(f"the value has {count} message indexes")
    indexes = []
    for _ in range(count):
        index, position = _index(value, position)
        indexes.append(index)
    return tuple(indexes), position


def _index(value: bytes, position: int) -> tuple[int, int]:
    """Return the zigzag varint at a position, and the position behind it."""
    number = 0
    for at in range(MAX_VARINT_BYTES):
        if position + at >= len(value):
            raise NotDecodable("the value ends within its message indexes")
        byte = value[position + at]
        number |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position + at + 1
    raise NotDecodable("a message index of the value is no varint of 32 bits")
