"""Restores the state of a log's producers at an offset, from a snapshot and the batches behind it.

Only the headers of batches are read, but for markers: the epoch of the transaction coordinator, which fences earlier
coordinators, is in their records. The same walk rebuilds the transaction indexes after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gregor.protocol.errors import KafkaError
from gregor.protocol.records.batch import CorruptBatch, RecordBatch
from gregor.protocol.records.control import EndMarker, read_end_marker
from gregor.storage.producers.transaction_checks import aborted_by
from gregor.storage.segment.batches import CONTROL_BIT, BatchHeader
from gregor.storage.segment.segment import OldMessageFormat

if TYPE_CHECKING:
    from gregor.storage.producers.state import ProducerStates
    from gregor.storage.segment.segment import Segment

NO_INDEX = 2**63 - 1
BATCHES_PER_STEP = 250


def replay_producers(
    producers: ProducerStates,
    segments: Sequence[Segment],
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int = 0,
) -> None:
    """Bring the producers to their state at the log end offset. `high_watermark` as in ProducerStates.replay."""
    from_offset = producers.load(log_start_offset, log_end_offset)
    for _ in replay_batches(producers, segments, from_offset, log_end_offset, high_watermark):
        pass


def replay_batches(
    producers: ProducerStates,
    segments: Sequence[Segment],
    from_offset: int,
    end_offset: int,
    high_watermark: int,
    index_from: int = NO_INDEX,
) -> Iterator[int]:
    """Replay the batches of these offsets; yields 0 after some of them. Markers from `index_from` on are added to the
    transaction index of their segment, which must not hold them yet. Segments of an old message format, which have no
    producers, are left out. Raises OSError, KafkaError, and OldMessageFormat for old messages behind newer ones."""
    for index, segment in enumerate(segments):
        upper_offset = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        if upper_offset <= from_offset or segment.base_offset >= end_offset or not segment.size_bytes:
            continue
        try:
            start = segment.locate(max(from_offset, segment.base_offset))
        except KafkaError:
            try:
                segment.refuse_old_format(0)
            except OldMessageFormat:
                continue  # no producer has written it
            raise
        if start is None:
            continue
        for count, batch in enumerate(segment.scan(start[0], verify_crc=False), start=1):
            if batch.last_offset >= end_offset:
                break
            if batch.attributes & CONTROL_BIT:
                marker = _read_marker(segment, batch)
                if batch.base_offset >= index_from:
                    entry = producers.entries.get(batch.producer_id)
                    aborted = aborted_by(entry, producers.transactions, batch, marker)
                    if aborted is not None:
                        segment.append_aborted(aborted)
                producers.replay(batch, marker, high_watermark)
            else:
                producers.replay(batch)
            if count % BATCHES_PER_STEP == 0:
                yield 0


def _read_marker(segment: Segment, batch: BatchHeader) -> EndMarker | None:
    """Return the content of a control batch; None if it has none, or if it cannot be read."""
    try:
        return read_end_marker(RecordBatch(segment.log.read(batch.size_bytes, batch.position)))
    except CorruptBatch:
        return None
