"""Groups of partitions to tasks: one task alone writes a partition.

Spark distributes rows by `pmod(hash(column), tasks)`, where the hash is Murmur3 with the seed 42. A column of numbers
that are chosen by their hashes gives each group of partitions a task of its own.
"""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_SEED = 42


def spark_hash(number: int) -> int:
    """Return Spark's hash of an int, as a signed number (Murmur3_x86_32.hashInt)."""
    word = _rotated((number & _MASK) * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    hashed = (_rotated(_SEED ^ word, 13) * 5 + 0xE6546B64) & _MASK
    hashed ^= 4  # the length of an int
    hashed = (hashed ^ (hashed >> 16)) * 0x85EBCA6B & _MASK
    hashed = (hashed ^ (hashed >> 13)) * 0xC2B2AE35 & _MASK
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (32 - bits)) & _MASK


def numbers_of_tasks(tasks: int) -> list[int]:
    """Return for each task a number that Spark distributes to it."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < tasks:
        found.setdefault(spark_hash(number) % tasks, number)
        number += 1
    return [found[task] for task in range(tasks)]


def group_sql(topic: str, partition: str, tasks: int) -> str:
    """Return the expression of the number by which a row is distributed to its task."""
    numbers = ", ".join(map(str, numbers_of_tasks(tasks)))
    return f"element_at(array({numbers}), cast(pmod(cast(hash({topic}) as bigint) + {partition}, {tasks}) as int) + 1)"
