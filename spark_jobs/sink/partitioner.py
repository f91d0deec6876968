"""Kafka's default partitioner (BuiltInPartitioner): murmur2 of the key, and for null keys one partition for many rows.

The expression is Spark SQL, so that no row travels to a Python worker for it. Its numbers are bigint below 2**32, and
the product of one with the multiplier is below 2**63, so that nothing overflows in ANSI mode.
"""

from __future__ import annotations

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF

STICKY_ROWS = 1000
"""Consecutive rows with null keys that go to one partition. Kafka changes it after batch.size bytes (KIP-794)."""


def murmur2(data: bytes) -> int:
    """Return Kafka's hash of a key, as an unsigned number of 32 bits (Utils.murmur2)."""
    length = len(data)
    hashed = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ (word >> 24)) * _MULTIPLIER & _MASK
        hashed = (hashed * _MULTIPLIER & _MASK) ^ word
    if length > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ (hashed >> 13)) * _MULTIPLIER & _MASK
    return hashed ^ (hashed >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key (BuiltInPartitioner.partitionForKey)."""
    return (murmur2(key) & _POSITIVE) % partition_count


def partition_sql(key: str, partition_count: str, start: int) -> str:
    """Return the expression for the partition of a row, by the name of its binary key and the number of partitions.

    Null keys begin at partition `start` and change after STICKY_ROWS rows of a task.
    """
    row = "(monotonically_increasing_id() & 8589934591L)"  # the lower 33 bits count the rows of a task
    sticky = f"{start} + spark_partition_id() + {row} div {STICKY_ROWS}"
    keyed = f"{murmur2_sql(key)} & {_POSITIVE}L"
    return f"cast(pmod(if({key} is null, {sticky}, {keyed}), {partition_count}) as int)"


def murmur2_sql(key: str) -> str:
    """Return the expression of `murmur2` for a binary column."""
    length = f"octet_length({key})"
    whole = f"({length} - {length} % 4)"
    positions = f"if({length} < 4, cast(array() as array<int>), sequence(0, {whole} - 4, 4))"
    big_endian = f"cast(conv(hex(substring({key}, at + 1, 4)), 16, 10) as bigint)"
    swapped = "(shiftleft(b & 255L, 24) | shiftleft(b & 65280L, 8) | shiftright(b, 8) & 65280L | shiftright(b, 24))"
    words = f"transform(transform({positions}, at -> {big_endian}), b -> {_times(swapped)})"
    seed = f"{_SEED}L ^ cast({length} as bigint)"
    mixed = f"aggregate({words}, {seed}, (h, w) -> {_times('h')} ^ {_times('(w ^ shiftright(w, 24))')})"
    rest = f"(h ^ {_last_bytes(key, whole)})"
    ended = _let("h", mixed, f"if({length} % 4 = 0, h, {_times(rest)})")
    spread = _let("h", ended, _times("(h ^ shiftright(h, 13))"))
    return _let("h", spread, "h ^ shiftright(h, 15)")


def _last_bytes(key: str, whole: str) -> str:
    """Return the little-endian number of the at most three bytes behind the whole words."""
    digits = ", ".join(f"hex(substring({key}, {whole} + {byte}, 1))" for byte in (3, 2, 1))
    return f"cast(conv(concat({digits}), 16, 10) as bigint)"


def _times(number: str) -> str:
    return f"({number} * {_MULTIPLIER}L & {_MASK}L)"


def _let(name: str, value: str, body: str) -> str:
    """Return the body with a name for the value, which is computed once."""
    return f"transform(array({value}), {name} -> {body})[0]"
