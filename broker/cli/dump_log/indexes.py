"""The files beside a segment as lines of text: both indexes, producer snapshots, aborted transactions.

The lines are those of Apache Kafka's DumpLogSegments. An index that a crash of Apache Kafka left preallocated ends at
the first entry of zeros.

A .txnindex holds one entry of 34 bytes for each aborted transaction, big-endian (Kafka's AbortedTxn): version int16,
producer id int64, first offset int64, last offset int64, last stable offset int64.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gregor.broker.cli.dump_log.records import last_offset_of, max_timestamp, read_entries
from gregor.broker.cli.errors import CommandError
from gregor.storage.producers.snapshot import parse_snapshot
from gregor.storage.segment.index import OffsetIndex, TimeIndex
from gregor.storage.segment.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX

if TYPE_CHECKING:
    from gregor.storage.fs.files import File, Files

Write = Callable[[str], object]

_ABORTED = struct.Struct(">hqqqq")


class IndexComplaints(NamedTuple):
    """The differences between an index and its log: pairs of the value in the index and the value in the log."""

    offsets: list[tuple[int, int]]
    timestamps: list[tuple[int, int]]
    out_of_order: list[tuple[int, int]]
    not_found: list[tuple[int, int]]


def base_offset_of(path: str) -> int:
    """Return the base offset in the name of a segment's file; raise CommandError if there is none."""
    stem = path.rpartition("/")[2].partition(".")[0]
    if not (stem.isascii() and stem.isdigit()):
        raise CommandError(f"{path}: the name of a segment's file is an offset, e.g. 00000000000000000000.log.")
    return int(stem)


def check_sanity(file: File, index: OffsetIndex | TimeIndex) -> str | None:
    """Return the reason why a starting broker rebuilds the index; None if there is none (AbstractIndex.sanityCheck)."""
    base_offset = index.base_offset
    size_bytes, entry_bytes = file.size_bytes(), index.ENTRY_BYTES
    if size_bytes % entry_bytes:
        return f"its size of {size_bytes} bytes is not a multiple of {entry_bytes}"
    count = index.entries
    if not count:
        return None
    if isinstance(index, OffsetIndex):
        last_offset = index.last()[0]
        return f"its last offset {last_offset} is not above {base_offset}" if last_offset <= base_offset else None
    last_timestamp, last_offset = index.last()
    if last_timestamp < index.entry(0)[0]:
        return f"its last timestamp {last_timestamp} is below its first one"
    return f"its last offset {last_offset} is below {base_offset}" if last_offset < base_offset else None


def dump_index(
    files: Files, path: str, sanity_only: bool, verify_only: bool, max_message_bytes: int, write: Write
) -> IndexComplaints:
    """Write the entries of an .index file, and compare each with the log."""
    complaints = IndexComplaints([], [], [], [])
    base_offset = base_offset_of(path)
    file, log = files.open(path), files.open(_beside(path, LOG_SUFFIX))
    if not file.size_bytes():
        write(f"{path} is empty.\n")
        return complaints
    if sanity_only:
        _print_sanity(path, file, OffsetIndex(files, path, base_offset), write)
        return complaints
    for offset, position in _entries(file, OffsetIndex.ENTRY, base_offset, offset_column=0):
        if not position and not log.size_bytes():
            break  # the preallocated index of an empty log
        found = None if position < 0 else next(read_entries(log, position, position + max_message_bytes), None)
        if found is None:
            raise CommandError(f"{path}: no batch of {log.path} starts at position {position}.")
        last_offset = last_offset_of(found)
        if last_offset != offset:
            complaints.offsets.append((offset, last_offset))
        if not verify_only:
            write(f"offset: {offset} position: {position}\n")
    return complaints


def dump_time_index(files: Files, path: str, sanity_only: bool, verify_only: bool, write: Write) -> IndexComplaints:
    """Write the entries of a .timeindex file, and compare each with the log, which the offset index helps to search."""
    complaints = IndexComplaints([], [], [], [])
    base_offset = base_offset_of(path)
    file, log = files.open(path), files.open(_beside(path, LOG_SUFFIX))
    offset_index = OffsetIndex(files, _beside(path, INDEX_SUFFIX), base_offset)
    if sanity_only:
        _print_sanity(path, file, TimeIndex(files, path, base_offset), write)
        return complaints
    previous = -1
    if not log.size_bytes():
        return complaints
    for offset, timestamp in _entries(file, TimeIndex.ENTRY, base_offset, offset_column=1):
        position = max(0, offset_index.lookup(offset)[1])  # the offset index may be damaged, too
        found = next((entry for entry in read_entries(log, position) if last_offset_of(entry) >= offset), None)
        if found is None or last_offset_of(found) != offset:
            complaints.not_found.append((offset, -1 if found is None else last_offset_of(found)))
        else:
            latest = max_timestamp(found)
            if latest != timestamp:
                complaints.timestamps.append((timestamp, latest))
            if previous >= timestamp:
                complaints.out_of_order.append((timestamp, previous))
        if not verify_only:
            write(f"timestamp: {timestamp} offset: {offset}\n")
        previous = timestamp
    return complaints


def dump_snapshot(files: Files, path: str, write: Write) -> None:
    """Write a producer snapshot, one line per producer."""
    try:
        entries = parse_snapshot(files.read_bytes(path))
    except ValueError as error:
        raise CommandError(f"{path}: {error}.") from None
    for entry in entries:
        open_since = entry.transaction_first_offset
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} "
            f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: "
            f"{'OptionalLong.empty' if open_since < 0 else f'OptionalLong[{open_since}]'} "
            f"lastTimestamp: {entry.last_timestamp}"
        )
        if entry.batches:
            last_sequence, last_offset, delta, timestamp = entry.batches[-1]
            first_sequence = (last_sequence - delta) & 0x7FFFFFFF if last_sequence >= 0 else -1
            line += (
                f" firstSequence: {first_sequence} lastSequence: {last_sequence} lastOffset: {last_offset} "
                f"offsetDelta: {delta} timestamp: {timestamp}"
            )
        write(line + "\n")


def dump_aborted(files: Files, path: str, write: Write) -> None:
    """Write the entries of a .txnindex file."""
    data = files.read_bytes(path)
    if len(data) % _ABORTED.size:
        raise CommandError(f"{path}: its size of {len(data)} bytes is not a multiple of {_ABORTED.size}.")
    for version, producer_id, first_offset, last_offset, stable_offset in _ABORTED.iter_unpack(data):
        write(
            f"version: {version} producerId: {producer_id} firstOffset: {first_offset} lastOffset: {last_offset} "
            f"lastStableOffset: {stable_offset}\n"
        )


def _print_sanity(path: str, file: File, index: OffsetIndex | TimeIndex, write: Write) -> None:
    problem = check_sanity(file, index)
    if problem is not None:
        raise CommandError(f"{path}: {problem}. The broker rebuilds the index when it starts.")
    write(f"{path} passed sanity check.\n")


def _entries(file: File, layout: struct.Struct, base_offset: int, offset_column: int) -> Iterator[tuple[int, int]]:
    """Yield offset and other column of each entry, up to the first entry of zeros.

    As in Kafka's tool, zeros are shown only for the first entry.
    """
    data = file.read(file.size_bytes(), 0)
    for slot in range(len(data) // layout.size):
        columns = layout.unpack_from(data, slot * layout.size)
        relative = columns[offset_column]
        if relative == 0 and slot > 0:
            return
        yield base_offset + relative, columns[1 - offset_column]


def _beside(path: str, suffix: str) -> str:
    for own in (TIME_INDEX_SUFFIX, INDEX_SUFFIX):
        if path.endswith(own):
            return path.removesuffix(own) + suffix
    return path
