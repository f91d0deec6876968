"""The compaction of a coordinator's log in its simplest form: what Kafka's cleaner leaves in the end.

Below the first record of an open transaction each key keeps the last of its records that count. Records of aborted
transactions go; so do tombstones, and the markers of transactions of which no record is left, as after
`delete.retention.ms`.
"""

from __future__ import annotations

from collections.abc import Iterable

from gregor.protocol.records.batch import RecordBatch, build_batch, iter_batches

ABORT = b"\0\0\0\0"


def compact(data: Iterable[bytes]) -> list[bytes]:
    """Return the batches that are left. Each piece of `data` is one batch."""
    pieces = list(data)
    batches = [next(iter_batches(piece)) for piece in pieces]
    transactions = Transactions(batches)
    latest: dict[bytes | None, int] = {}
    for batch in batches:
        if transactions.counts(batch):
            latest.update((record.key, record.offset) for record in batch.records())
    kept = []
    left = set()
    for piece, batch in zip(pieces, batches, strict=True):
        number = transactions.numbers.get(batch.base_offset)
        if batch.base_offset >= transactions.first_open or (batch.is_control and number in left):
            kept.append(piece)
        elif transactions.counts(batch):
            records = [record for record in batch.records() if latest[record.key] == record.offset and record.value]
            if records:
                left.add(number)
                kept.append(
                    bytes(
                        build_batch(
                            records,
                            producer_id=batch.producer_id,
                            producer_epoch=batch.producer_epoch,
                            transactional=batch.is_transactional,
                        )
                    )
                )
    return kept


class Transactions:
    """The transaction of each batch, also of markers, by the batch's base offset; and how the transactions ended."""

    def __init__(self, batches: list[RecordBatch]) -> None:
        self.numbers: dict[int, int] = {}
        self.aborted: set[int] = set()
        self.first_open = max((batch.next_offset for batch in batches), default=0)
        present: dict[int, int] = {}
        begun = {}
        for batch in batches:
            if batch.is_control:
                number = present.pop(batch.producer_id, None)
                if number is None:
                    continue
                self.numbers[batch.base_offset] = number
                (marker,) = batch.records()
                if marker.key == ABORT:
                    self.aborted.add(number)
            elif batch.is_transactional:
                number = present.setdefault(batch.producer_id, len(begun))
                begun.setdefault(number, batch.base_offset)
                self.numbers[batch.base_offset] = number
        self.first_open = min((begun[number] for number in present.values()), default=self.first_open)

    def counts(self, batch: RecordBatch) -> bool:
        """Return whether the batch has data below the first open transaction and is not of an aborted one."""
        if batch.is_control or batch.base_offset >= self.first_open:
            return False
        return self.numbers.get(batch.base_offset) not in self.aborted
