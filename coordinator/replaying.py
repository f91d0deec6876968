"""Replays the records of the log into a shard."""

import logging
from collections.abc import Callable, Iterable

from gregor.coordinator.ports import Shard
from gregor.coordinator.result import Record
from gregor.protocol.errors import MalformedMessage
from gregor.protocol.records.batch import RecordBatch, iter_batches
from gregor.protocol.records.control import ABORT, COMMIT, control_type
from gregor.protocol.records.entries import Entry, entries_of, plain_entries
from gregor.protocol.turns import Steps

_log = logging.getLogger(__name__)

NO_PRODUCER_ID = -1

BYTES_PER_STEP = 4096
"""The size of the values after which other work may proceed; small ones need some 8 us for 100 bytes."""
RECORD_BYTES = 64
"""The least that a record, or a batch, counts."""


def replay(
    shard: Shard,
    decode: Callable[[bytes | None, bytes | None], Record | None],
    data: bytes | bytearray | memoryview,
    offset: int,
    name: str,
) -> Steps[int]:
    """Replay batches, which begin at `offset`, record by record; returns the offset that comes next.

    A record that cannot be decoded is skipped with a warning: one bad record must not make the others unreadable.
    Raises CorruptBatch where batches themselves are broken.
    """
    since_yield_bytes = 0
    position = 0
    while True:
        producer_id = NO_PRODUCER_ID
        entries: Iterable[Entry]
        plain = plain_entries(data, position)
        if plain is not None:
            size_bytes, offset, entries = plain
        else:
            batch = next(iter_batches(memoryview(data)[position:]), None)
            if batch is None:
                return offset
            size_bytes, offset, entries = batch.size_bytes, batch.next_offset, ()
            if batch.is_control:
                _replay_marker(shard, batch)
            else:
                producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
                entries = entries_of(batch)
        position += size_bytes
        for record_offset, key, value in entries:
            try:
                record = decode(key, value)
            except MalformedMessage as error:
                _log.warning(
                    "%s: the record at offset %d cannot be decoded and is skipped: %s", name, record_offset, error
                )
            else:
                if record is not None:
                    shard.replay(record, record_offset, producer_id)
            since_yield_bytes += RECORD_BYTES + (0 if value is None else len(value))
            if since_yield_bytes > BYTES_PER_STEP:
                since_yield_bytes = 0
                yield None
        since_yield_bytes += RECORD_BYTES
        if since_yield_bytes > BYTES_PER_STEP:
            since_yield_bytes = 0
            yield None


def _replay_marker(shard: Shard, batch: RecordBatch) -> None:
    for written in batch.records():
        # The coordinator epoch in the value is not needed, so a marker without one ends its transaction too.
        kind = control_type(written)
        if kind in (ABORT, COMMIT):
            shard.replay_end_of_transaction(batch.producer_id, commit=kind == COMMIT)
