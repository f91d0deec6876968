"""Plain records parsed to positions, lengths and numbers, and gathered into Arrow arrays.

No Python object is made for a record. `parse` finds where the fields of all records lie; `binary_array` has Arrow copy
fields of one kind out of the buffer, in one pass. The layout of a record is in gregor.protocol.records.batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gregor.protocol.records.batch import CorruptBatch, read_varint
from gregor.spark_jobs.arrow.schema import HEADER_TYPE
from gregor.spark_jobs.arrow.varints import (
    MAX_INT64_BITS,
    Numbers,
    Octets,
    Positions,
    TooLong,
    read_varints,
    record_starts,
)

MIN_RECORD_BYTES = 7
"""Length, attributes, both deltas, the lengths of key and value, and the count of headers."""

MAX_HEADERS_IN_STEPS = 64
"""The headers of a record with more of them are walked one after another."""


class Field(NamedTuple):
    """One field of all records: where it lies, and its length; below 0 it is null."""

    positions: Positions
    lengths: Numbers


class Headers(NamedTuple):
    """The headers of all records, one after another; `counts` has their number of each record."""

    counts: Numbers
    names: Field
    values: Field


class Records(NamedTuple):
    """The fields of all records of some batches; `headers` is None if they are not wanted."""

    timestamp_deltas: Numbers
    offset_deltas: Numbers
    keys: Field
    values: Field
    headers: Headers | None


class Malformed(CorruptBatch):
    """The records of a batch do not match its header; `batch` is its index."""

    def __init__(self, batch: int) -> None:
        super().__init__(f"the records of batch {batch} are malformed")
        self.batch = batch


def parse(octets: Octets, firsts: Positions, ends: Positions, counts: Numbers, with_headers: bool) -> Records:
    """Parse the records of batches, which lie in `octets` within their bounds, in ascending order. Raises Malformed.

    Each batch has a record. Every position is checked against the bounds of its record. Headers that are not wanted
    are not parsed.
    """
    sizes = ends - firsts
    bad = np.flatnonzero((counts < 1) | (counts * MIN_RECORD_BYTES > sizes))
    if len(bad):
        raise Malformed(int(bad[0]))
    try:
        starts = record_starts(octets, firsts, ends, counts)
    except TooLong as error:
        raise Malformed(error.index) from None
    batch_ends = np.cumsum(counts)
    record_ends = np.empty_like(starts)
    record_ends[:-1] = starts[1:]
    record_ends[batch_ends - 1] = ends
    try:
        records, errors = _fields(octets, starts, record_ends, with_headers)
    except TooLong as error:
        errors = np.array([error.index])
    if len(errors):
        raise Malformed(int(np.searchsorted(batch_ends, errors.min(), side="right")))
    return records


def _fields(octets: Octets, starts: Positions, ends: Positions, with_headers: bool) -> tuple[Records, NDArray]:
    """Return the fields, and the indexes of records that are malformed."""
    sizes, positions = read_varints(octets, starts)
    wrong = positions + sizes != ends
    positions += 1  # attributes: none are in use
    timestamp_deltas, positions = read_varints(octets, positions, MAX_INT64_BITS)
    offset_deltas, positions = read_varints(octets, positions)
    keys, positions = _field(octets, positions)
    values, positions = _field(octets, positions)
    header_counts, positions = read_varints(octets, positions)
    wrong |= positions > ends
    wrong |= header_counts < 0
    wrong |= header_counts * 2 > ends - positions
    without = header_counts == 0
    wrong |= without & (positions != ends)
    errors = np.flatnonzero(wrong)
    headers = None
    if with_headers and not len(errors):
        headers, errors = _headers(octets, positions, ends, header_counts)
    return Records(timestamp_deltas, offset_deltas, keys, values, headers), errors


def _field(octets: Octets, positions: Positions) -> tuple[Field, Positions]:
    lengths, starts = read_varints(octets, positions)
    return Field(starts, lengths), starts + np.maximum(lengths, 0)


def _headers(octets: Octets, positions: Positions, ends: Positions, counts: Numbers) -> tuple[Headers, NDArray]:
    """Parse the headers: step by step the next one of all records that have one left."""
    total = int(counts.sum())
    spans = np.zeros((4, total), dtype=np.int64)
    slots = np.cumsum(counts) - counts
    positions = positions.copy()
    wrong = np.zeros(len(counts), dtype=bool)
    for record in np.flatnonzero(counts > MAX_HEADERS_IN_STEPS):
        slot, count = int(slots[record]), int(counts[record])
        end = _walk_headers(octets, int(positions[record]), int(ends[record]), spans[:, slot : slot + count])
        wrong[record] = end != ends[record]
    active = np.flatnonzero((counts > 0) & (counts <= MAX_HEADERS_IN_STEPS))
    step = 0
    while len(active):
        try:
            name, behind = _field(octets, positions[active])
            value, behind = _field(octets, behind)
        except TooLong as error:
            raise TooLong(int(active[error.index])) from None
        into = slots[active] + step
        spans[0, into], spans[1, into] = name
        spans[2, into], spans[3, into] = value
        positions[active] = behind
        failed = (name.lengths < 0) | (behind > ends[active])
        step += 1
        finished = counts[active] == step
        failed |= finished & (behind != ends[active])
        wrong[active[failed]] = True
        active = active[~finished & ~failed]
    headers = Headers(counts, Field(spans[0], spans[1]), Field(spans[2], spans[3]))
    return headers, np.flatnonzero(wrong)


def _walk_headers(octets: Octets, position: int, end: int, spans: NDArray) -> int:
    """Fill in the headers of one record; return the position behind them, or -1."""
    data = octets[position:end].tobytes()
    at = 0
    try:
        for slot in range(spans.shape[1]):
            for row in (0, 2):
                length, at = read_varint(data, at)
                if at + length > len(data) or (row == 0 and length < 0):
                    return -1
                spans[row, slot], spans[row + 1, slot] = position + at, length
                at += max(0, length)
    except (IndexError, CorruptBatch):
        return -1
    return position + at


def binary_array(octets: Octets, field: Field, kept: NDArray | None) -> pa.BinaryArray:
    """Copy a field of the kept records (by index; None: of all) out of the buffer.

    An Arrow array over the whole buffer, in which every second element is a field and the others are what lies
    between, has the fields already; Arrow copies the elements with these indexes.
    """
    count = len(field.positions)
    bounds = np.empty(2 * count + 1, dtype=np.int32)
    bounds[: 2 * count : 2] = field.positions
    bounds[1 : 2 * count : 2] = field.positions + np.maximum(field.lengths, 0)
    bounds[2 * count] = bounds[2 * count - 1] if count else 0
    both = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(octets)])
    indices = np.arange(0, 2 * count, 2) if kept is None else kept * 2
    found = both.take(pa.array(indices))
    null = field.lengths < 0 if kept is None else field.lengths[kept] < 0
    if null.any():
        bitmap = pa.py_buffer(np.packbits(~null, bitorder="little"))
        found = pa.Array.from_buffers(pa.binary(), len(found), [bitmap, *found.buffers()[1:]])
    return found


def text_array(binary: pa.BinaryArray) -> pa.StringArray:
    """Return the texts in UTF-8; bytes that are none become U+FFFD, as in Java."""
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if one is None else one.decode("utf-8", "replace") for one in binary.to_pylist()])


def headers_array(octets: Octets, headers: Headers, kept: NDArray | None) -> pa.ListArray:
    """Return the headers of the kept records (by index; None: of all): null for a record without any."""
    counts, wanted = headers.counts, None
    if kept is not None:
        is_kept = np.zeros(len(counts), dtype=bool)
        is_kept[kept] = True
        wanted = np.flatnonzero(np.repeat(is_kept, counts))
        counts = counts[kept]
    names = text_array(binary_array(octets, headers.names, wanted))
    return list_of_headers(counts, names, binary_array(octets, headers.values, wanted))


def list_of_headers(counts: Numbers | Sequence[int], names: pa.StringArray, values: pa.BinaryArray) -> pa.ListArray:
    """Make one list for each record of the headers of all; null for a record without any."""
    counts = np.asarray(counts, dtype=np.int64)
    bounds = np.zeros(len(counts) + 1, dtype=np.int32)
    bounds[1:] = np.cumsum(counts)
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE))
    null = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    return pa.Array.from_buffers(
        pa.list_(HEADER_TYPE), len(counts), [null, pa.py_buffer(bounds)], children=[pairs], null_count=-1
    )
