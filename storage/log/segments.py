"""The segments of one log.

Invariants:

- `items` ascend by base offset, `bases` are their base offsets, and the last one is `active`, the only one that is
  appended to. Only a truncation that failed leaves none; the log is offline then.
- `generation` changes with every truncation: a copy of the log from before is no longer a prefix of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gregor.storage.segment.segment import LOG_SUFFIX, Segment

if TYPE_CHECKING:
    from gregor.storage.fs.files import Files

MAX_KNOWN_POSITIONS = 64


class Segments:
    """The list itself; the parts of a log decide what is added and removed."""

    __slots__ = ("active", "bases", "directory", "files", "generation", "items", "names_changed", "positions")

    def __init__(self, files: Files, directory: str, items: list[Segment], *, names_changed: bool = True) -> None:
        self.files = files
        self.directory = directory
        self.items = items
        self.bases = [segment.base_offset for segment in items]
        self.active = items[-1]
        self.generation = 0
        self.names_changed = names_changed
        """Files were created, renamed or deleted in the folder since it was last synced."""
        self.positions: dict[int, int] = {}
        """Positions of some batches of the active segment by base offset: where the next reads begin or end."""

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.items)

    def index_of(self, offset: int) -> int:
        """Return the index of the segment that holds the offset, if any does; 0 for offsets below the first."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def create(self, base_offset: int, now_ms: int) -> Segment:
        """Create a new segment, which is not in the list yet. Raises OSError."""
        return Segment.create(self.files, self.directory, base_offset, now_ms=now_ms)

    def add_active(self, segment: Segment) -> None:
        self.items.append(segment)
        self.bases.append(segment.base_offset)
        self.active = segment
        self.names_changed = True
        self.positions.clear()

    def remove_first(self) -> None:
        del self.items[0], self.bases[0]

    def remove_from(self, index: int) -> None:
        del self.items[index:]
        del self.bases[index:]
        self.names_changed = True

    def replace(self, indexes: slice, segment: Segment) -> None:
        self.items[indexes] = [segment]
        self.bases[indexes] = [segment.base_offset]
        self.names_changed = True

    def truncated(self) -> None:
        """Note that the end of the log was removed."""
        self.generation += 1
        self.positions.clear()

    def remember(self, offset: int, position: int) -> None:
        """Note where the batch of this offset of the active segment begins: the next read begins there, or the high
        watermark lies there."""
        known = self.positions
        if len(known) >= MAX_KNOWN_POSITIONS:
            known.clear()
        known[offset] = position


def list_segments(files: Files, directory: str, now_ms: int = 0) -> list[Segment]:
    """List the segments in a folder, in offset order, without reading them."""
    found = []
    for name, is_directory, size_bytes in files.list_directory(directory):
        stem = name.removesuffix(LOG_SUFFIX)
        if name.endswith(LOG_SUFFIX) and len(stem) == 20 and stem.isascii() and stem.isdigit() and not is_directory:
            found.append((int(stem), size_bytes))
    return [
        Segment.open(files, directory, base_offset, size_bytes=size_bytes, now_ms=now_ms)
        for base_offset, size_bytes in sorted(found)
    ]


def epochs_of_batches(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """Return the (leader epoch, start offset) pairs of the batches themselves; reads all their headers."""
    entries: list[tuple[int, int]] = []
    for segment in segments:
        for batch in segment.scan(verify_crc=False):
            if batch.leader_epoch > (entries[-1][0] if entries else -1):
                entries.append((batch.leader_epoch, batch.base_offset))
    return entries
