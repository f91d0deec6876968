"""The messages of protocol type "consumer" within joins and assignments (Kafka: ConsumerProtocolSubscription and
ConsumerProtocolAssignment), as far as a comparison needs them.

Subscription: version int16, topics [string], user data ?bytes; since 1 owned partitions [string, [int32]]; since 2 a
generation int32; since 3 a rack ?string. Assignment: version int16, partitions [string, [int32]], user data ?bytes. A
newer version only appends fields.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

CONSUMER_PROTOCOL_TYPE = "consumer"
OWNED_SINCE = 1
GENERATION_SINCE = 2
RACK_SINCE = 3

Partitions = dict[str, tuple[int, ...]]
"""Partition numbers by topic."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class Undecodable(ValueError):
    """The bytes are no such message. Clients may send what they like."""


class Subscription(NamedTuple):
    """`owned` is None where the client did not send it: members of version 0 give all up before they join."""

    topics: frozenset[str]
    user_data: bytes
    owned: Partitions | None
    rack: str | None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def int16(self) -> int:
        return int(self._fixed(_INT16))

    def int32(self) -> int:
        return int(self._fixed(_INT32))

    def _fixed(self, kind: struct.Struct) -> int:
        if self._position + kind.size > len(self._data):
            raise Undecodable(f"{len(self._data)} bytes are too few")
        (value,) = kind.unpack_from(self._data, self._position)
        self._position += kind.size
        return int(value)

    def _bytes(self, size: int) -> bytes:
        data = self._data[self._position : self._position + size]
        if size < 0 or len(data) != size:
            raise Undecodable(f"a field of {size} bytes where {len(data)} are left")
        self._position += size
        return data

    def string(self) -> str:
        try:
            return self._bytes(self.int16()).decode()
        except UnicodeDecodeError as error:
            raise Undecodable(str(error)) from None

    def nullable_string(self) -> str | None:
        size = self.int16()
        return None if size < 0 else self._bytes(size).decode(errors="replace")

    def nullable_bytes(self) -> bytes:
        size = self.int32()
        return b"" if size < 0 else self._bytes(size)

    def count(self, min_size: int) -> int:
        """An array's length, which the bytes that are left can hold."""
        count = self.int32()
        if count < 0 or count * min_size > len(self._data) - self._position:
            raise Undecodable(f"an array of {count} elements in {len(self._data)} bytes")
        return count

    def partitions(self) -> Partitions:
        found: Partitions = {}
        for _ in range(self.count(6)):
            topic = self.string()
            count = self.count(_INT32.size)
            numbers = struct.unpack(f">{count}i", self._bytes(count * _INT32.size))
            found[topic] = found.get(topic, ()) + numbers
        return found


def decode_assignment(data: bytes) -> Partitions:
    """Raises Undecodable. No bytes are an empty assignment."""
    if not data:
        return {}
    reader = _Reader(data)
    reader.int16()
    return reader.partitions()


def decode_subscription(data: bytes) -> Subscription:
    """Raises Undecodable."""
    reader = _Reader(data)
    version = reader.int16()
    topics = frozenset(reader.string() for _ in range(reader.count(_INT16.size)))
    user_data = reader.nullable_bytes()
    owned = reader.partitions() if version >= OWNED_SINCE else None
    if version >= GENERATION_SINCE:
        reader.int32()
    rack = reader.nullable_string() if version >= RACK_SINCE else None
    return Subscription(topics, user_data, owned, rack)
