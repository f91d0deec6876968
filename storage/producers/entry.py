"""One producer of a log: its epoch, its last batches, and the transaction that it has open."""

from __future__ import annotations

from typing import NamedTuple

from gregor.storage.segment.batches import NO_TIMESTAMP, SEQUENCE_MASK
from gregor.storage.segment.producer_trail import BATCHES_KEPT

MAX_SEQUENCES_BACK = 1 << 30
"""The repetition of an older batch cannot be distinguished from a batch far ahead: sequences wrap around."""


class AppendedBatch(NamedTuple):
    """The part of a batch that is kept."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer. `next_sequence` is derived from the last batch; 0 without one."""

    __slots__ = (
        "batches",
        "begins_at",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "lost_sequence",
        "next_sequence",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, epoch: int = -1) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: list[tuple[int, int, int, int]] = []
        """The fields of up to BATCHES_KEPT AppendedBatches, oldest first. (Plain: a named tuple is slow to make.)"""
        self.begins_at = -1
        """The log holds every batch of the epoch from this sequence to the next one; -1: that is not known."""
        self.next_sequence = 0
        self.lost_sequence = -1
        """Of a batch that could not be written. While it is `next_sequence`, the batches after it are refused, too."""
        self.last_timestamp = NO_TIMESTAMP
        self.coordinator_epoch = -1
        self.transaction_first_offset = -1

    def lose(self, sequence: int) -> None:
        """Note that the batch with this first sequence could not be written."""
        self.lost_sequence = sequence

    def add(self, epoch: int, batch: tuple[int, int, int, int]) -> None:
        """Note that a batch (the fields of an AppendedBatch) was appended. A new epoch drops the batches of the old
        one."""
        batches = self.batches
        if epoch != self.epoch:
            self.epoch = epoch
            batches.clear()
            self.begins_at = (batch[0] - batch[2]) & SEQUENCE_MASK if batch[0] >= 0 else -1
        batches.append(batch)
        if len(batches) > BATCHES_KEPT:
            del batches[0]
        self.next_sequence = (batch[0] + 1) & SEQUENCE_MASK
        self.last_timestamp = batch[3]

    def has_batch_from(self, first_sequence: int) -> bool:
        """Return whether one of the last batches begins with this sequence."""
        for last_sequence, _, offset_delta, _ in self.batches:
            if (last_sequence - offset_delta) & SEQUENCE_MASK == first_sequence:
                return True
        return False

    def has_open_transaction(self, epoch: int) -> bool:
        """Return whether a transaction of this epoch is open."""
        return self.transaction_first_offset >= 0 and self.epoch == epoch

    def held_before(self, first_sequence: int, last_sequence: int) -> bool:
        """Return whether the log holds a batch of these sequences, in this epoch, from before the oldest of
        `batches`."""
        if self.begins_at < 0 or not self.batches:
            return False
        oldest = AppendedBatch._make(self.batches[0]).first_sequence
        known = (oldest - self.begins_at) & SEQUENCE_MASK
        back = (oldest - first_sequence) & SEQUENCE_MASK
        count = ((last_sequence - first_sequence) & SEQUENCE_MASK) + 1
        return count <= back <= min(known, MAX_SEQUENCES_BACK)

    def recall(self, earlier: ProducerEntry) -> None:
        """Add the batches before the first known one, as the log holds them."""
        if earlier.epoch != self.epoch or not earlier.batches or not self.batches:
            return
        joint = AppendedBatch._make(earlier.batches[-1])
        if joint.first_sequence != self.begins_at:
            return
        self.begins_at = earlier.begins_at
        if self.batches[0] == earlier.batches[-1]:
            self.batches[:0] = earlier.batches[:-1]
            del self.batches[:-BATCHES_KEPT]

    def end_transaction(self, epoch: int, timestamp: int, coordinator_epoch: int) -> None:
        """Note that a control batch (commit or abort marker) was appended."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.begins_at = self.next_sequence = 0
        self.coordinator_epoch = coordinator_epoch
        self.transaction_first_offset = -1
        self.last_timestamp = timestamp
