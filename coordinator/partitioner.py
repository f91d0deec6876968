"""The partition of an internal topic that coordinates a group or a transactional id."""

from __future__ import annotations

import struct
from functools import lru_cache


def java_hash(text: str) -> int:
    """String.hashCode of Java: signed 32 bits over UTF-16 units."""
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        data = text.encode("utf-16-be", "surrogatepass")
        for (unit,) in struct.iter_unpack(">H", data):
            value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x100000000 if value >= 0x80000000 else value


_hash = lru_cache(maxsize=10_000)(java_hash)


def partition_of(key: str, partition_count: int) -> int:
    """Kafka's Utils.abs of Java's hashCode, modulo the number of partitions that the topic has."""
    number = _hash(key)
    return (0 if number == -(2**31) else abs(number)) % partition_count
