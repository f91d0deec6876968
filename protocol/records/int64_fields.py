"""Where numbers stand in bytes that are encoded again and again, with only these numbers different.

The general encoder encodes once, with a mark in the place of each number; the marks are found in the bytes. So there is
no second description of any layout. The result is compared with a second encoding before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct

_INT64 = Struct(">q")
_ZERO = bytes(_INT64.size)
# Values that are improbable in names and other fields; a comparison finds out where they occur all the same.
_MARK, _OTHER_MARK = 0x7A6F_1D2E_3C4B_5A00, 0x6B5C_4D3E_2F10_0900

Encode = Callable[[Sequence[int]], bytes | bytearray]
"""Encodes a message, or several, that contains each of these numbers as an int64."""


def int64_positions(encode: Encode, count: int) -> list[tuple[int, ...]] | None:
    """Return the positions at which each of `count` numbers stands in the encoded bytes; a number may stand at several.
    None if other bytes depend on the numbers, or one of them does not occur."""
    encoded = bytes(encode([_MARK + number for number in range(count)]))
    positions = [_occurrences(encoded, _INT64.pack(_MARK + number)) for number in range(count)]
    if not all(positions):
        return None
    others = [_OTHER_MARK + number for number in range(count)]
    replaced = bytearray(encoded)
    for found, other in zip(positions, others, strict=True):
        for position in found:
            _INT64.pack_into(replaced, position, other)
    return positions if replaced == encode(others) else None


def _occurrences(data: bytes, pattern: bytes) -> tuple[int, ...]:
    found = []
    position = data.find(pattern)
    while position >= 0:
        found.append(position)
        position = data.find(pattern, position + len(pattern))
    return tuple(found)


class Int64Fields:
    """Bytes of which only some int64 fields differ from one time to the next."""

    __slots__ = ("_masked", "_positions", "_unpack")

    def __init__(self, data: bytes, positions: Sequence[int]) -> None:
        """The fields stand at these rising positions of `data`, and do not overlap."""
        layout, end = ">", 0
        for position in positions:
            layout += f"{position - end}xq"
            end = position + _INT64.size
        self._unpack = Struct(f"{layout}{len(data) - end}x").unpack
        self._positions = tuple(positions)
        self._masked = self._mask(data)

    def numbers(self, data: bytes) -> tuple[int, ...] | None:
        """Return the numbers in the fields; None if any other byte is different."""
        if len(data) != len(self._masked) or self._mask(data) != self._masked:
            return None
        return self._unpack(data)

    def _mask(self, data: bytes) -> bytearray:
        masked = bytearray(data)
        for position in self._positions:
            masked[position : position + _INT64.size] = _ZERO
        return masked
