"""The topics that a member of protocol type "consumer" subscribes to, read out of its metadata.

Only the common start of all versions of Kafka's ConsumerProtocolSubscription is decoded: version int16, topic count
int32, then per topic a length int16 and its name in UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

CONSUMER_PROTOCOL_TYPE = "consumer"

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """All topics that the members with this metadata subscribe to; None if one of them cannot be decoded."""
    topics: set[str] = set()
    try:
        for data in metadata:
            topics.update(_topics(data))
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)


def _topics(data: bytes) -> Iterable[str]:
    _, count = _HEAD.unpack_from(data)
    position = _HEAD.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        name = data[position : position + length]
        if length < 0 or len(name) != length:
            raise struct.error(f"a topic name of {length} bytes where {len(name)} are left")
        yield name.decode()
        position += length
