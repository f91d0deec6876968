"""Replays the records of the log into a shard, without decoding those that later ones of the same key supersede.

A value is passed over if a later plain record has the same key, and the shard's records of that kind are independent of
all others: the state is the same, and a log that was not compacted yet, of which most are commits of the same offsets,
is loaded in a fraction of the time. Tombstones, records of transactions and markers always count, and the order of what
counts is that of the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from gregor.coordinator.ports import Shard
from gregor.coordinator.result import Record
from gregor.protocol.errors import MalformedMessage
from gregor.protocol.records.batch import RecordBatch, iter_batches
from gregor.protocol.records.control import ABORT, COMMIT, control_type
from gregor.protocol.records.entries import Entry, entries_of, plain_entries
from gregor.protocol.turns import Steps

_log = logging.getLogger(__name__)

NO_PRODUCER_ID = -1

Decode = Callable[[bytes | None, bytes | None], Record | None]
"""Returns None for a record of a kind that is not served; raises MalformedMessage."""

IsIndependent = Callable[[bytes], bool]
"""Whether, of the records with this key, the last one alone decides about the state, whatever stands between them."""

BYTES_PER_STEP = 4096
"""The size of the values after which other work may proceed; small ones need some 8 us for 100 bytes."""
RECORD_BYTES = 64
"""The least that a record, or a batch, counts."""
BATCHES_PER_STEP = 64
"""Batches that are parsed before other work may proceed, if they are short; each needs some 3 us."""
MAX_KEPT_BYTES = 32 * 1024 * 1024
"""The keys and values that are kept in memory until the end of the log is known. A longer log is replayed up to there
and from there on record by record: values before and after that point must not supersede each other."""


class _Marker(NamedTuple):
    """The end of a transaction."""

    producer_id: int
    commit: bool


class _InTransaction(NamedTuple):
    """A record of a transaction."""

    producer_id: int
    entry: Entry


class LoadedRecords:
    """The records of a log that were read and are not replayed yet."""

    def __init__(self, is_independent: IsIndependent) -> None:
        self._is_independent = is_independent
        # None stands for a value that was superseded.
        self._kept: list[Entry | _InTransaction | _Marker | None] = []
        self._latest: dict[bytes, int] | None = {}
        self._kept_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the records must be replayed before more are read."""
        return self._latest is None or self._kept_bytes > MAX_KEPT_BYTES

    def read(self, data: bytes | bytearray | memoryview, offset: int) -> Steps[int]:
        """Parse batches, which begin at `offset`; returns the offset that comes next. Raises CorruptBatch where batches
        themselves are broken."""
        data = bytes(data)
        position = 0
        count = 0
        while True:
            plain = plain_entries(data, position)
            if plain is not None:
                size_bytes, offset, entries = plain
                self._keep(entries)
                count += len(entries)
            else:
                batch = next(iter_batches(memoryview(data)[position:]), None)
                if batch is None:
                    return offset
                size_bytes, offset = batch.size_bytes, batch.next_offset
                count += self._keep_batch(batch)
            position += size_bytes
            count += 1
            if count > BATCHES_PER_STEP:
                count = 0
                yield None

    def _keep(self, entries: Iterable[Entry]) -> None:
        kept, latest, is_independent = self._kept, self._latest, self._is_independent
        size_bytes = 0
        for entry in entries:
            _, key, value = entry
            if latest is not None and key is not None and is_independent(key):
                before = latest.get(key)
                if before is not None and (superseded := kept[before]) is not None and superseded[-1] is not None:
                    size_bytes -= len(superseded[-1])  # type: ignore[arg-type]  # it is a plain record
                    kept[before] = None
                latest[key] = len(kept)
            kept.append(entry)
            size_bytes += RECORD_BYTES + len(key or b"") + len(value or b"")
        self._kept_bytes += size_bytes

    def _keep_batch(self, batch: RecordBatch) -> int:
        """Keep the records of a batch that is not plain; returns their number."""
        before = len(self._kept)
        if batch.is_control:
            for written in batch.records():
                # The coordinator epoch in the value is not needed, so a marker without one ends its transaction too.
                kind = control_type(written)
                if kind in (ABORT, COMMIT):
                    self._kept.append(_Marker(batch.producer_id, kind == COMMIT))
        elif batch.is_transactional and batch.producer_id != NO_PRODUCER_ID:
            self._kept += [_InTransaction(batch.producer_id, entry) for entry in entries_of(batch)]
        else:
            self._keep(entries_of(batch))
        return len(self._kept) - before

    def replay(self, shard: Shard, decode: Decode, name: str) -> Steps[None]:
        """Replay what was read. From now on no value supersedes another one.

        A record that cannot be decoded is skipped with a warning: one bad record must not make the others unreadable.
        """
        kept, self._kept, self._latest, self._kept_bytes = self._kept, [], None, 0
        since_yield_bytes = 0
        for one in kept:
            if one is None:
                continue
            producer_id = NO_PRODUCER_ID
            if isinstance(one, _Marker):
                shard.replay_end_of_transaction(one.producer_id, commit=one.commit)
                continue
            if isinstance(one, _InTransaction):
                producer_id, one = one
            offset, key, value = one
            try:
                record = decode(key, value)
            except MalformedMessage as error:
                _log.warning("%s: the record at offset %d cannot be decoded and is skipped: %s", name, offset, error)
            else:
                if record is not None:
                    shard.replay(record, offset, producer_id)
            since_yield_bytes += RECORD_BYTES + (0 if value is None else len(value))
            if since_yield_bytes > BYTES_PER_STEP:
                since_yield_bytes = 0
                yield None


def replay(
    shard: Shard,
    decode: Decode,
    is_independent: IsIndependent,
    data: bytes | bytearray | memoryview,
    offset: int,
    name: str,
) -> Steps[int]:
    """Replay batches, which begin at `offset`; returns the offset that comes next. For a log that is there as a
    whole; errors as those of LoadedRecords."""
    loaded = LoadedRecords(is_independent)
    reached = yield from loaded.read(data, offset)
    yield from loaded.replay(shard, decode, name)
    return reached
