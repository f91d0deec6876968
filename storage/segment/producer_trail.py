"""Keeps, of all the batches of a walk through a log, those from which the state of its producers can be made."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from gregor.storage.segment.batches import LENGTH_OVERHEAD, BatchHeader

BATCHES_KEPT = 10
"""Of each producer, to find the offsets of a repetition. Apache Kafka keeps as many as a client has in flight on one
connection: 5. When the leader changes while the old one hangs, as many again are in flight to the new one."""

Header = tuple[int, int, int, int, int, int, int, int, int, int, int]
"""base offset, length, leader epoch, magic, crc, attributes, last offset delta, max timestamp, producer id, producer
epoch, base sequence."""


class ProducerTrail:
    """The state holds a producer's last batches and its epoch. Keeping these batches costs a tenth of replaying every
    batch. Transactions need more, the order of all their batches: where there are some, every batch is replayed.
    """

    __slots__ = ("_recent", "from_offset", "has_transactions")

    def __init__(self) -> None:
        self.from_offset: int | None = None
        """No batch at or above it was left out; None before the walk has begun."""
        self._recent: dict[int, deque[Header]] = {}
        self.has_transactions = False
        """There are transactional batches or markers: `batches` is not complete."""

    def begin(self, from_offset: int) -> None:
        """Note the first offset of a part of the walk."""
        self.from_offset = from_offset if self.from_offset is None else min(self.from_offset, from_offset)

    def recent(self, producer_id: int) -> deque[Header]:
        """Return the queue to which the headers of this producer's plain batches are appended, in order."""
        headers = self._recent.get(producer_id)
        if headers is None:
            headers = self._recent[producer_id] = deque(maxlen=BATCHES_KEPT)
        return headers

    def note_transaction(self) -> None:
        """Note a batch that is transactional or a control batch."""
        self.has_transactions = True

    def batches(self, from_offset: int) -> list[BatchHeader]:
        """Return the batches to replay, in order, onto the state below `from_offset`. If that offset lies inside a
        batch, as a log start offset may, the batch is included."""
        by_offset = {header[0]: header for headers in self._recent.values() for header in headers}
        return [batch for _, header in sorted(by_offset.items()) if (batch := _view(header)).last_offset >= from_offset]

    # Between processes

    def to_fields(self) -> dict[str, Any]:
        """Return what was kept, for `extend`; it survives JSON."""
        recent = [header for headers in self._recent.values() for header in headers]
        return {"recent": recent, "has_transactions": self.has_transactions}

    def extend(self, fields: Mapping[str, Any]) -> None:
        """Add what the trail of the next part of the walk has kept."""
        for one in fields["recent"]:
            header = _header(one)
            self.recent(header[8]).append(header)
        self.has_transactions |= fields["has_transactions"]


def _header(fields: Sequence[Any]) -> Header:
    base, length, epoch, magic, crc, attributes, delta, timestamp, producer_id, producer_epoch, sequence = fields
    return base, length, epoch, magic, crc, attributes, delta, timestamp, producer_id, producer_epoch, sequence


def _view(header: Header) -> BatchHeader:
    """Make a header from the fields that are kept: without position, base timestamp and record count."""
    batch = BatchHeader()
    batch.position = batch.base_timestamp = batch.record_count = -1
    (batch.base_offset, length, batch.leader_epoch, _, batch.crc, batch.attributes, last_offset_delta,
     batch.max_timestamp, batch.producer_id, batch.producer_epoch, batch.base_sequence) = header  # fmt: skip
    batch.size_bytes = length + LENGTH_OVERHEAD
    batch.last_offset = batch.base_offset + last_offset_delta
    return batch
