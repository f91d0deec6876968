"""The variable-length integers of records (zigzag, 7 bits a byte, least first), many of them at once.

Positions may lie anywhere: reads beyond the end of the bytes return the last byte, so that the caller, who checks where
the fields of a record end, finds them wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from gregor.protocol.records.batch import read_varint

Positions = NDArray[np.int64]
Numbers = NDArray[np.int64]
Octets = NDArray[np.uint8]

MAX_INT32_BITS = 35
MAX_INT64_BITS = 70


class TooLong(ValueError):
    """A number of more bytes than its type allows; `index` is its place among those that were read."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def read_varints(octets: Octets, positions: Positions, max_bits: int = MAX_INT32_BITS) -> tuple[Numbers, Positions]:
    """Read one number at each position; return the numbers and the positions behind them. Raises TooLong. Bits above
    the size of the type are dropped, as Java's readers drop them."""
    first = octets.take(positions, mode="clip")
    ends = positions + 1
    numbers = first.astype(np.int64)
    pending = np.flatnonzero(first >= 0x80)
    if len(pending):
        numbers[pending] &= 0x7F
        shift = 7
        while True:
            following = octets.take(ends.take(pending), mode="clip").astype(np.int64)
            ends[pending] += 1
            numbers[pending] |= (following & 0x7F) << shift
            pending = pending[following >= 0x80]
            if not len(pending):
                break
            shift += 7
            if shift >= max_bits:
                raise TooLong(int(pending[0]))
    bits = numbers.view(np.uint64)
    if max_bits == MAX_INT32_BITS:
        bits &= np.uint64(0xFFFFFFFF)
    signs = (bits & np.uint64(1)).view(np.int64)
    bits >>= np.uint64(1)
    np.negative(signs, out=signs)
    numbers ^= signs
    return numbers, ends


def _sizes() -> list[list[int | None]]:
    """Return for the first two bytes of a record its size, with that of its length; None for a length of more than two
    bytes, and for one below 0."""
    rows = []
    for low in range(256):
        row: list[int | None] = [None] * 256
        if not low & 1:
            if low < 0x80:
                row = [(low >> 1) + 1] * 256
            else:
                row[:128] = [((low & 0x7F | high << 7) >> 1) + 2 for high in range(128)]
        rows.append(row)
    return rows


_SIZES = _sizes()
_SIZE_TABLE = np.array([[-1 if size is None else size for size in row] for row in _SIZES], dtype=np.int64).T.ravel()
"""The same by both bytes as one number, little-endian; -1 for None."""


MIN_BATCHES_IN_STEP = 48
"""So many batches are walked in step: the next record of each by one call of numpy. It needs about as long as a loop
over this number of records."""


def record_starts(octets: Octets, firsts: Positions, ends: Positions, counts: Numbers) -> Positions:
    """Return where each record of these batches starts; `firsts` and `ends` are the bounds of the records of a batch.
    Raises TooLong, with the index of a batch. The caller checks that the records fill their batch.

    The length of a record leads to the start of the next one, so this is a loop over them, in one batch after the other
    or, as long as enough batches have a record left, in all of them at once. All else is computed for all records.
    """
    starts = np.repeat(firsts, counts)
    slots = np.cumsum(counts) - counts
    done = _walk_in_step(octets, starts, slots, counts) if len(counts) >= MIN_BATCHES_IN_STEP else 0
    data = octets.data
    for index in np.flatnonzero(counts > done + 1).tolist():
        slot, count = int(slots[index]) + done, int(counts[index]) - done
        first = int(starts[slot])
        part = bytes(data[first : ends[index]]) + b"\0\0"
        try:
            within = np.fromiter(_starts(part, count), dtype=np.int64, count=count)
        except (TypeError, IndexError):
            try:
                within = np.fromiter(_starts_of_any_size(part, count), dtype=np.int64, count=count)
            except (ValueError, IndexError):
                raise TooLong(index) from None
        starts[slot : slot + count] = within + first
    return starts


def _walk_in_step(octets: Octets, starts: Positions, slots: Positions, counts: Numbers) -> int:
    """Fill in the starts of the first records of all batches; return the index of the last record that has one, also
    in the batches with fewer records."""
    order = np.argsort(-counts, kind="stable")
    slots = slots[order]
    positions = starts[slots]
    step = 0
    # The number of batches with more than `step` records, for each step.
    left = len(counts) - np.searchsorted(counts[order][::-1], np.arange(1, int(counts.max()) + 1), side="left")
    for active in left[1:].tolist():
        if active < MIN_BATCHES_IN_STEP:
            break
        step += 1
        positions = positions[:active]
        low = octets.take(positions, mode="clip").astype(np.int64)
        high = octets.take(positions + 1, mode="clip").astype(np.int64)
        sizes = _SIZE_TABLE.take(low | high << 8)
        if (sizes < 0).any():
            return step - 1
        positions = positions + sizes
        starts[slots[:active] + step] = positions
    return step


def _starts(data: bytes, count: int) -> Iterator[int]:
    """Yield the starts of records that are shorter than 8 KB. Raises TypeError if one is not."""
    sizes = _SIZES
    at = 0
    yield at
    for _ in repeat(None, count - 1):
        at += sizes[data[at]][data[at + 1]]  # type: ignore[operator]
        yield at


def _starts_of_any_size(data: bytes, count: int) -> Iterator[int]:
    at = 0
    yield at
    for _ in repeat(None, count - 1):
        length, at = read_varint(data, at)
        at += length
        if length < 0:
            raise ValueError
        yield at
