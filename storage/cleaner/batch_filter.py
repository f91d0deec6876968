"""Filters one record batch for compaction. Pure: bytes in, bytes out. (Kafka's MemoryRecords.filterTo.)

a record is removed when a later one of its key is known, when it has no key, or when it is a tombstone (null value)
                    and the batch's delete horizon has passed
none is removed     the batch is copied as it is
some are removed    the batch is rewritten: base offset, last offset delta, producer fields, leader epoch, codec
                    and kind of timestamp are the old ones; base timestamp is that of the first record left, max
                    timestamp the largest one left
all are removed     so is the batch, unless it must stay as a header without records: the last batch of a live
                    producer (its sequence number must survive), the last one of a cleaning round (its offset must)
tombstones stay     and the batch has no delete horizon: it is set to now + delete.retention.ms, as attribute bit 6
                    with the horizon as the base timestamp; timestamp deltas count from there (KIP-534)
"""

from __future__ import annotations

from struct import Struct

from gregor.protocol.records.batch import (
    COMPRESSION_MASK,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER,
    LOG_OVERHEAD,
    MAX_PLAIN_BYTES,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_BIT,
    CorruptBatch,
    RecordBatch,
    wrapped_int64,
)
from gregor.protocol.records.checksum import crc32c
from gregor.protocol.records.compression import DecompressionError, compress, decompress
from gregor.protocol.records.spans import RecordSpan, record_spans, with_timestamp_delta
from gregor.storage.cleaner.offset_map import OffsetMap
from gregor.storage.segment.batches import CRC_START

MAX_TIMESTAMP = 2**63 - 1

_CRC = Struct(">I")


class Filtered:
    """A batch after the filter; `data` is None when nothing is left of it."""

    __slots__ = ("data", "max_timestamp", "records_kept", "records_read")

    def __init__(
        self, data: bytes | bytearray | memoryview | None, max_timestamp: int, records_read: int, records_kept: int
    ) -> None:
        self.data = data
        self.max_timestamp = max_timestamp
        self.records_read = records_read
        self.records_kept = records_kept


def plain_records(batch: RecordBatch) -> bytes:
    """Return the decompressed records of the batch. Raises CorruptBatch, also for a wrong checksum: the rewritten batch
    gets a valid one, which would hide the damage permanently."""
    if not batch.crc_ok():
        raise CorruptBatch(f"wrong checksum at offset {batch.base_offset}")
    body = batch.memory()[RECORD_BATCH_OVERHEAD:]
    codec = batch.attributes & COMPRESSION_MASK
    if not codec:
        return bytes(body)
    if not batch.record_count:
        return b""
    try:
        return decompress(codec, body, MAX_PLAIN_BYTES)
    except DecompressionError as error:
        raise CorruptBatch(f"offset {batch.base_offset}: {error}") from error


def located_records(batch: RecordBatch) -> tuple[bytes, list[RecordSpan]]:
    """Return the decompressed records, and the position of each of them. Raises CorruptBatch, also for a record with an
    offset outside of its batch: it would count as a later one of its key than it is."""
    data = plain_records(batch)
    spans = record_spans(data, batch.record_count)
    last_delta = batch.last_offset_delta
    for span in spans:
        if not 0 <= span[4] <= last_delta:
            raise CorruptBatch(f"a record at {span[4]:+} of a batch from {batch.base_offset} to {batch.last_offset}")
    return data, spans


def filter_batch(
    batch: RecordBatch, latest: OffsetMap, *, now_ms: int, delete_retention_ms: int, retain_empty: bool
) -> Filtered:
    """Remove the records that compaction removes. `latest` has the last offset of each key, up to its `latest_offset`;
    records behind that are kept. Not for control batches. Raises CorruptBatch."""
    data, spans = located_records(batch)
    count = batch.record_count
    base_offset = batch.base_offset
    horizon = batch.base_timestamp if batch.has_delete_horizon else NO_TIMESTAMP
    tombstones_stay = horizon < 0 or now_ms < horizon
    known_up_to, last_of = latest.latest_offset, latest.get
    kept = []
    any_tombstone = False
    for span in spans:
        _, _, _, _, offset_delta, key, has_value = span
        offset = base_offset + offset_delta
        if offset <= known_up_to and (key is None or not (has_value or tombstones_stay) or offset < last_of(key)):
            continue
        kept.append(span)
        if not has_value:
            any_tombstone = True
    if not kept:
        return Filtered(empty_batch(batch) if retain_empty else None, batch.max_timestamp, count, 0)
    sets_horizon = any_tombstone and horizon < 0
    if len(kept) == count and not sets_horizon:
        return Filtered(batch.memory(), batch.max_timestamp, count, count)
    if sets_horizon:
        horizon = min(now_ms + delete_retention_ms, MAX_TIMESTAMP)
    return _rewritten(batch, data, kept, horizon)


def with_delete_horizon(batch: RecordBatch, horizon_ms: int) -> Filtered:
    """Return the whole batch with this delete horizon: a transaction marker that is no longer needed is removed after
    the same delay as tombstones. Raises CorruptBatch."""
    data, spans = located_records(batch)
    return _rewritten(batch, data, spans, min(horizon_ms, MAX_TIMESTAMP))


def _rewritten(batch: RecordBatch, data: bytes, kept: list[RecordSpan], horizon: int) -> Filtered:
    append_time = batch.attributes & TIMESTAMP_TYPE_BIT
    old_base = batch.base_timestamp
    first_timestamp = batch.max_timestamp if append_time else wrapped_int64(old_base + kept[0][3])
    base_timestamp = horizon if horizon >= 0 else first_timestamp
    shift = old_base - base_timestamp
    parts = []
    for span in kept:
        delta = span[3]
        new_delta = batch.max_timestamp - base_timestamp if append_time else delta + shift
        parts.append(data[span[0] : span[1]] if new_delta == delta else with_timestamp_delta(data, span, new_delta))
    max_timestamp = batch.max_timestamp if append_time else max(wrapped_int64(old_base + span[3]) for span in kept)
    codec = batch.attributes & COMPRESSION_MASK
    body = b"".join(parts)
    attributes = batch.attributes & ~DELETE_HORIZON_BIT
    if horizon >= 0:
        attributes |= DELETE_HORIZON_BIT
    packed = compress(codec, body) if codec else body
    rewritten = _assemble(batch, packed, attributes, base_timestamp, max_timestamp, len(kept))
    return Filtered(rewritten, max_timestamp, batch.record_count, len(kept))


def empty_batch(batch: RecordBatch) -> bytearray:
    """Return the batch without its records: not compressed, no base timestamp, no delete horizon, all else as it
    was."""
    attributes = batch.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    return _assemble(batch, b"", attributes, NO_TIMESTAMP, batch.max_timestamp, 0)


def _assemble(
    batch: RecordBatch, body: bytes, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytearray:
    data = bytearray(
        HEADER.pack(
            batch.base_offset,
            RECORD_BATCH_OVERHEAD - LOG_OVERHEAD + len(body),
            batch.leader_epoch,
            2,
            0,
            attributes,
            batch.last_offset_delta,
            base_timestamp,
            max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            count,
        )
    )
    data += body
    _CRC.pack_into(data, CRC_AT, crc32c(memoryview(data)[CRC_START:]))
    return data
