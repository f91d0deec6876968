"""The batches below an offset, as many as may come again: what a snapshot of producers does not tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gregor.storage.segment.batches import BatchHeader
    from gregor.storage.segment.segment import Segment

MAX_INDEX_ENTRIES_BACK = 64
"""Index entries. There is one in 4 KB, or, of larger batches, one a batch (index.interval.bytes): that is 256 KB, whose
headers are read in milliseconds; and of large batches more than a few clients have under way."""


def batches_below(segments: Sequence[Segment], offset: int) -> Iterator[BatchHeader]:
    """The last batches below the offset, in their order. A segment counts as an entry, too. Raises OSError, and
    OldMessageFormat at a message set of before 0.11."""
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
