"""Restores the state of a log's producers at an offset, from the newest snapshot and the batches behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gregor.storage.producers.state import ProducerStates
    from gregor.storage.segment.segment import Segment


def replay_producers(
    producers: ProducerStates, segments: Sequence[Segment], log_start_offset: int, log_end_offset: int, now_ms: int
) -> None:
    """Bring the producers to their state at the log end offset."""
    from_offset = producers.load(log_start_offset, log_end_offset, now_ms)
    for index, segment in enumerate(segments):
        upper_offset = segments[index + 1].base_offset if index + 1 < len(segments) else log_end_offset
        if upper_offset <= from_offset or not segment.size_bytes:
            continue
        start = segment.locate(max(from_offset, segment.base_offset))
        if start is not None:
            for batch in segment.scan(start[0], verify_crc=False):
                if batch.last_offset >= log_end_offset:
                    break
                producers.replay(batch)
