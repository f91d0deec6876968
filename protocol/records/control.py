"""Control batches: the markers that end a transaction (KIP-98; Kafka's EndTransactionMarker).

A marker is a batch of one record, with the transactional and the control bit and without a sequence:

    key      int16 version, 0; int16 type: 0 abort, 1 commit
    value    int16 version, 0; int32 epoch of the coordinator that has written it

Control records of other types (leader changes, snapshots) belong to KRaft, and to no producer.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

from gregor.protocol.records.batch import (
    CONTROL_BIT,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_BIT,
    CorruptBatch,
    Record,
    RecordBatch,
    seal_batch,
)

ABORT, COMMIT = 0, 1

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
# Length of what follows, attributes, timestamp delta, offset delta, key length, key, value length, value, header count;
# the lengths are zigzag varints of one byte.
_RECORD = Struct(">BBBBBhhBhiB")
_MARKER_BYTES = RECORD_BATCH_OVERHEAD + _RECORD.size


class EndTransaction(NamedTuple):
    """A request of the transaction coordinator to write a marker."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int = 0
    """The finalized `transaction.version` by which the transaction runs. From 2 on each marker has a new epoch
    (KIP-890)."""

    def batch(self, now_ms: int) -> bytearray:
        """Build the batch of the marker."""
        return end_marker(self.producer_id, self.producer_epoch, self.coordinator_epoch, self.commit, now_ms)


class EndMarker(NamedTuple):
    """The content of a marker."""

    commit: bool
    coordinator_epoch: int


def end_marker(
    producer_id: int, producer_epoch: int, coordinator_epoch: int, commit: bool, timestamp_ms: int
) -> bytearray:
    """Build the batch of a marker, at offset 0: the leader sets offset and leader epoch when it appends the batch."""
    batch = bytearray(_MARKER_BYTES)
    _RECORD.pack_into(batch, RECORD_BATCH_OVERHEAD, *_record(COMMIT if commit else ABORT, coordinator_epoch))
    seal_batch(
        batch,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        record_count=1,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    return batch


def control_type(record: Record) -> int:
    """Return the type of a control record. Raises CorruptBatch."""
    try:
        return int(_KEY.unpack_from(record.key or b"")[1])
    except error:
        raise CorruptBatch(f"the control record at offset {record.offset} has no type") from None


def parse_end_marker(record: Record) -> EndMarker | None:
    """Parse a control record; None if it is of another type than a marker. Raises CorruptBatch."""
    kind = control_type(record)
    if kind not in (ABORT, COMMIT):
        return None
    try:
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except error:
        raise CorruptBatch(f"the transaction marker at offset {record.offset} has no coordinator epoch") from None
    return EndMarker(kind == COMMIT, coordinator_epoch)


def read_end_marker(batch: RecordBatch) -> EndMarker | None:
    """Parse the first record of a control batch; None without one (compaction removes the record of a marker that is no
    longer needed), and for other types. Raises CorruptBatch."""
    if batch.size_bytes == _MARKER_BYTES:
        # Nearly all markers have these very bytes but for their type and epoch.
        record = _RECORD.unpack_from(batch.buffer, batch.position + RECORD_BATCH_OVERHEAD)
        kind, coordinator_epoch = record[6], record[9]
        if kind in (ABORT, COMMIT) and record == _record(kind, coordinator_epoch) and not batch.compression:
            return EndMarker(kind == COMMIT, coordinator_epoch)
    for first in batch.records():
        return parse_end_marker(first)
    return None


def _record(kind: int, coordinator_epoch: int) -> tuple[int, ...]:
    """Return the fields of _RECORD."""
    return (_RECORD.size - 1) << 1, 0, 0, 0, _KEY.size << 1, 0, kind, _VALUE.size << 1, 0, coordinator_epoch, 0
