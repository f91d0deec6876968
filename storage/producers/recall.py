"""The batches below an offset that producers may send again: a snapshot of producers does not hold them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gregor.storage.segment.batches import BatchHeader
    from gregor.storage.segment.segment import Segment

MAX_INDEX_ENTRIES_BACK = 64
"""There is an index entry for each 4 KB, or for each larger batch (index.interval.bytes): together 256 KB, whose
headers are read in milliseconds, and more large batches than a few clients have in flight."""


def batches_below(segments: Sequence[Segment], offset: int) -> Iterator[BatchHeader]:
    """Return the last batches below the offset, in their order. A segment counts as an entry, too. Raises OSError, and
    OldMessageFormat at a message set from before Kafka 0.11."""
    starts: list[tuple[Segment, int]] = []
    left = MAX_INDEX_ENTRIES_BACK
    for segment in reversed(segments):
        if segment.base_offset >= offset:
            continue
        index = segment.offset_index
        _, position = index.lookup(offset - 1)
        slot = index.entries_below_position(position) - left
        starts.append((segment, index.entry(slot)[1] if slot >= 0 else 0))
        left = -slot - 1
        if left <= 0:
            break
    for segment, position in reversed(starts):
        for batch in segment.scan(position, verify_crc=False):
            if batch.last_offset >= offset:
                return
            yield batch
