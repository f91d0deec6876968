"""The slow obvious twin of the decoder: one record after the other, by gregor.protocol.records."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from gregor.protocol.records.batch import Record, RecordBatch, build_batch, iter_batches
from gregor.protocol.records.control import end_marker
from gregor.spark_jobs.arrow.decoder import Aborted, AbortedTransactions, Decoder
from gregor.spark_jobs.arrow.rows import RowBuilder

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


def time_of(timestamp_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=timestamp_ms)


def rows_of(
    data: bytes,
    start: int = 0,
    end: int = 2**62,
    aborted: Iterable[tuple[int, int, int]] = (),
    read_committed: bool = False,
) -> list[Row]:
    """`aborted` has producer id, first offset, and offset of the marker. Raises CorruptBatch."""
    rows = []
    for batch in iter_batches(data):
        assert batch.crc_ok()
        if batch.is_control or (read_committed and _is_aborted(batch, aborted)):
            continue
        for record in batch.records():
            if start <= record.offset < end:
                rows.append(_row(record, batch.timestamp_type))
    return rows


def _is_aborted(batch: RecordBatch, aborted: Iterable[tuple[int, int, int]]) -> bool:
    return batch.is_transactional and any(
        batch.producer_id == producer_id and first <= batch.base_offset < marker
        for producer_id, first, marker in aborted
    )


def _row(record: Record, timestamp_type: int) -> Row:
    headers = [{"key": name, "value": value} for name, value in record.headers] or None
    return {
        "key": record.key,
        "value": record.value,
        "topic": "t",
        "partition": 3,
        "offset": record.offset,
        "timestamp": time_of(record.timestamp),
        "timestampType": timestamp_type,
        "headers": headers,
    }


def decoded(
    data: bytes | memoryview,
    start: int = 0,
    end: int = 2**62,
    aborted: Iterable[tuple[int, int, int]] = (),
    read_committed: bool = False,
    **options: Any,
) -> list[Row]:
    """Return the rows of the decoder."""
    transactions = None
    if read_committed:
        transactions = AbortedTransactions()
        transactions.replace(Aborted(first, producer_id) for producer_id, first, _ in aborted)
    builder = RowBuilder("t", 3, None, True, options.pop("max_batch_rows", 1000))
    decoder = Decoder(builder, start, end, aborted=transactions, **options)
    rows = []
    for part in decoder.decode(data):
        part.validate(full=True)
        assert part.num_rows
        rows.extend(part.to_pylist())
    return rows


def marker(offset: int, producer_id: int, commit: bool) -> bytes:
    """A transaction marker at an offset."""
    data = end_marker(producer_id, 0, 0, commit, 1000)
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


def batch_of(first: int, count: int, value_bytes: int = 20, **settings: Any) -> bytes:
    """A batch of records whose contents name their offsets."""
    records = [
        Record(offset, 1000 + offset, b"k%d" % offset, (b"v%d." % offset).ljust(value_bytes, b"."), [])
        for offset in range(first, first + count)
    ]
    return bytes(build_batch(records, **settings))
