"""The messages of protocol type "consumer", as clients encode them."""

import struct
from collections.abc import Mapping, Sequence

Partitions = Mapping[str, Sequence[int]]


def subscription(
    *topics: str, owned: Partitions | None = None, version: int = 1, user_data: bytes = b"", rack: str | None = None
) -> bytes:
    """ConsumerProtocolSubscription."""
    data = struct.pack(">hi", version, len(topics)) + b"".join(_string(topic) for topic in topics)
    data += struct.pack(">i", len(user_data)) + user_data
    if version >= 1:
        data += _partitions(owned or {})
    if version >= 2:
        data += struct.pack(">i", 7)
    if version >= 3:
        data += struct.pack(">h", -1) if rack is None else _string(rack)
    return data


def assignment(partitions: Partitions, version: int = 1) -> bytes:
    """ConsumerProtocolAssignment."""
    return struct.pack(">h", version) + _partitions(partitions) + struct.pack(">i", -1)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _partitions(partitions: Partitions) -> bytes:
    return struct.pack(">i", len(partitions)) + b"".join(
        _string(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        for topic, numbers in partitions.items()
    )
