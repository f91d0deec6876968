"""MetricsData of opentelemetry-proto as a client encodes it."""

from __future__ import annotations

import struct
from collections.abc import Mapping


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, data: bytes | str) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(data)) + data


def number(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def attribute(name: str, value: str) -> bytes:
    return field(7, field(1, name) + field(2, field(1, value)))


def point(value: float, attributes: Mapping[str, str] = {}) -> bytes:
    """A number with its times; whole numbers as integers."""
    times = varint(2 << 3 | 1) + bytes(8) + varint(3 << 3 | 1) + struct.pack("<Q", 1_700_000_000_000_000_000)
    if isinstance(value, int):
        encoded = varint(6 << 3 | 1) + struct.pack("<q", value)
    else:
        encoded = varint(4 << 3 | 1) + struct.pack("<d", value)
    return times + encoded + b"".join(attribute(*one) for one in attributes.items())


def gauge(name: str, *points: bytes) -> bytes:
    return field(1, name) + field(2, "description") + field(5, b"".join(field(1, one) for one in points))


def counter(name: str, *points: bytes, delta: bool = False) -> bytes:
    body = b"".join(field(1, one) for one in points) + number(2, 1 if delta else 2) + number(3, 1)
    return field(1, name) + field(7, body)


def push(*metrics: bytes) -> bytes:
    resource = field(1, attribute("client_rack", "r"))
    scope = field(1, field(1, "scope"))
    return field(1, resource + field(2, scope + b"".join(field(2, one) for one in metrics)))
