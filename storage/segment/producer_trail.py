"""Keeps, of all the batches of a walk through a log, those from which the state of its producers can be made."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from gregor.storage.segment.batches import CONTROL_BIT, LENGTH_OVERHEAD, TRANSACTIONAL_BIT, BatchHeader

BATCHES_KEPT = 10
"""Of each producer, to find the offsets of a repetition. Apache Kafka keeps as many as a client has in flight on one
connection: 5. When the leader changes while the old one hangs, as many again are in flight to the new one."""

Header = tuple[int, int, int, int, int, int, int, int, int, int, int]
"""base offset, length, leader epoch, magic, crc, attributes, last offset delta, max timestamp, producer id, producer
epoch, base sequence."""


class ProducerTrail:
    """The state holds a producer's last batches, its epoch, and the first offset of its open transaction. So it depends
    only on the last batches, the last marker, and the first transactional batch behind that. Keeping these costs a
    tenth of replaying every batch.
    """

    __slots__ = ("_markers", "_openers", "_recent", "from_offset")

    def __init__(self) -> None:
        self.from_offset: int | None = None
        """No batch at or above it was left out; None before the walk has begun."""
        self._recent: dict[int, deque[Header]] = {}
        self._markers: dict[int, Header] = {}
        self._openers: dict[int, Header] = {}

    def begin(self, from_offset: int) -> None:
        """Note the first offset of a part of the walk."""
        self.from_offset = from_offset if self.from_offset is None else min(self.from_offset, from_offset)

    def recent(self, producer_id: int) -> deque[Header]:
        """Return the queue to which the headers of this producer's plain batches are appended, in order."""
        headers = self._recent.get(producer_id)
        if headers is None:
            headers = self._recent[producer_id] = deque(maxlen=BATCHES_KEPT)
        return headers

    def keep_special(self, header: Header) -> None:
        """Add a batch that may be transactional or a control batch."""
        attributes, producer_id = header[5], header[8]
        if attributes & CONTROL_BIT:
            self._markers[producer_id] = header
            self._openers.pop(producer_id, None)
            return
        self.recent(producer_id).append(header)
        if attributes & TRANSACTIONAL_BIT:
            self._openers.setdefault(producer_id, header)

    def batches(self, from_offset: int) -> list[BatchHeader]:
        """Return the batches to replay, in order, onto the state below `from_offset`. If that offset lies inside a
        batch, as a log start offset may, the batch is included."""
        by_offset = {header[0]: header for headers in self._recent.values() for header in headers}
        by_offset.update((header[0], header) for header in self._markers.values())
        by_offset.update((header[0], header) for header in self._openers.values())
        return [batch for _, header in sorted(by_offset.items()) if (batch := _view(header)).last_offset >= from_offset]

    # Between processes

    def to_lists(self) -> list[list[Header]]:
        """Return what was kept, for `extend`; it survives JSON."""
        recent = [header for headers in self._recent.values() for header in headers]
        return [recent, list(self._markers.values()), list(self._openers.values())]

    def extend(self, lists: Sequence[Sequence[Sequence[Any]]]) -> None:
        """Add what the trail of the next part of the walk has kept."""
        recent, markers, openers = ([_header(one) for one in kept] for kept in lists)
        for header in recent:
            self.recent(header[8]).append(header)
        for header in markers:
            self._markers[header[8]] = header
            self._openers.pop(header[8], None)
        for header in openers:
            self._openers.setdefault(header[8], header)


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
