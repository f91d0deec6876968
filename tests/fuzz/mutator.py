"""Makes broken inputs out of good ones: flips, cuts, copies, splices, and numbers at the ends of their ranges."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random

Mutation = Callable[[bytearray], None]

MAX_BYTES = 1 << 17
"""No input grows beyond it: time and memory of a parser are judged by inputs of about this size."""

# Lengths, counts and offsets that parsers get wrong: the ends of every width, just around them, and small lies.
_NUMBERS = (-(2**63), -(2**31), -(2**31) + 1, -(2**15), -129, -128, -3, -2, -1, 0, 1, 2, 3, 12, 61, 126, 127, 128, 255,
            256, 2**15 - 1, 2**15, 2**16 - 1, 2**24, 2**28, 2**31 - 13, 2**31 - 1, 2**31, 2**32 - 1, 2**62,
            2**63 - 1)  # fmt: skip
_WIDTHS = ("b", "h", "i", "q")
EXTREMES = tuple(
    struct.pack(order + width, number)
    for width in _WIDTHS
    for number in _NUMBERS
    for order in (">", "<")
    if -(1 << (8 * struct.calcsize(width) - 1)) <= number < 1 << (8 * struct.calcsize(width) - 1)
)
VARINTS = (b"\x00", b"\x01", b"\x02", b"\x7f", b"\x80\x01", b"\xff\x7f", b"\xff\xff\xff\x7f",
           b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f",
           b"\x80\x80\x80\x80\x80\x01", b"\x80\x00", b"\xff" * 9 + b"\x01", b"\xff" * 11)  # fmt: skip
WORDS = (b"0", b"-1", b"9" * 19, b"9223372036854775807", b"2147483648", b"9" * 5000, b"1e999", b"NaN", b"\xff\xfe",
         b"\n", b"\r\n", b" ", b"\t", b"\x00", b"=", b":", b",", b"\\", b"\\u", b"\\ud800",
         b'"', b"{", b"}", b"[", b"]",
         b"[" * 200, b"null", b"true", b"{}", b"[]", b"1.5", "\u0663".encode(), "\u00b2".encode(), b"\xed\xa0\x80",
         b"version", b"%", b"#", b"+", b"P1D", b"T", b"://", b"..", b"-delete", b"_", b"0x10", b"\xc2\x85")  # fmt: skip


class Mutator:
    """Changes bytes at random, the same way for the same seed."""

    def __init__(self, seed: object) -> None:
        self.random = Random(str(seed))
        self._below = self.random.random
        self.binary: tuple[Mutation, ...] = (
            *(self.flip, self.flip, self.set_byte, self.set_number, self.set_number, self.set_number, self.set_varint),
            *(self.cut, self.remove, self.repeat, self.insert, self.copy, self.swap),
        )
        self.text: tuple[Mutation, ...] = (
            *(self.flip, self.set_byte, self.cut, self.remove, self.repeat, self.insert, self.copy, self.swap),
            *(self.put_word, self.put_word, self.put_word, self.replace_digits, self.replace_digits),
        )

    def below(self, limit: int) -> int:
        """From 0 up to `limit`, which is excluded; 0 where there is nothing to choose from."""
        return int(self._below() * limit)

    def position(self, data: bytearray) -> int:
        """Somewhere in the data, near its beginning twice as often: that is where lengths and counts stand."""
        share = self._below()
        return int((share if self._below() < 0.5 else share * share) * len(data))

    def change(self, data: bytes, others: Sequence[bytes], *, text: bool = False) -> bytearray:
        """`data` changed in one to a few places, or mixed with one of the `others`, or, rarely, noise."""
        kind = self._below()
        if kind < 0.02:
            return bytearray(self.random.randbytes(self.below(200)))
        changed = bytearray(data)
        if kind < 0.08:
            other = others[self.below(len(others))]
            del changed[self.position(changed) :]
            changed += other[self.below(len(other)) :]
            if kind < 0.05:
                return changed[:MAX_BYTES]
        mutations = self.text if text else self.binary
        while True:
            mutations[self.below(len(mutations))](changed)
            if self._below() < 0.5:
                return changed[:MAX_BYTES]

    # Each changes the data in place and accepts empty data, too.

    def flip(self, data: bytearray) -> None:
        if data:
            data[self.position(data)] ^= 1 << self.below(8)

    def set_byte(self, data: bytearray) -> None:
        if data:
            data[self.position(data)] = self.below(256)

    def set_number(self, data: bytearray) -> None:
        self._overwrite(data, EXTREMES[self.below(len(EXTREMES))])

    def set_varint(self, data: bytearray) -> None:
        self._overwrite(data, VARINTS[self.below(len(VARINTS))])

    def cut(self, data: bytearray) -> None:
        del data[self.below(len(data)) :]

    def remove(self, data: bytearray) -> None:
        start = self.position(data)
        del data[start : start + 1 + self.below(16)]

    def repeat(self, data: bytearray) -> None:
        start = self.position(data)
        piece = data[start : start + 1 + self.below(64)]
        data[start:start] = piece * (1 + self.below(40) if self._below() < 0.1 else 1)

    def insert(self, data: bytearray) -> None:
        start = self.position(data)
        data[start:start] = self.random.randbytes(1 + self.below(8))

    def copy(self, data: bytearray) -> None:
        """Writes one part over another."""
        start = self.position(data)
        self._overwrite(data, data[start : start + 1 + self.below(32)])

    def swap(self, data: bytearray) -> None:
        """Exchanges what stands before a place with what stands behind it."""
        start = self.position(data)
        data[:] = data[start:] + data[:start]

    def put_word(self, data: bytearray) -> None:
        start = self.position(data)
        data[start : start + self.below(4)] = WORDS[self.below(len(WORDS))]

    def replace_digits(self, data: bytearray) -> None:
        """Another number in the place of one."""
        start = self.position(data)
        while start < len(data) and not 0x30 <= data[start] <= 0x39:
            start += 1
        end = start
        while end < len(data) and 0x30 <= data[end] <= 0x39:
            end += 1
        if start < end:
            data[start:end] = b"%d" % _NUMBERS[self.below(len(_NUMBERS))]

    def _overwrite(self, data: bytearray, piece: bytes | bytearray) -> None:
        start = self.position(data)
        data[start : start + len(piece)] = piece
