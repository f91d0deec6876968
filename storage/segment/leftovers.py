"""The files that an interrupted job leaves in the folder of a partition, and how a start handles them.

    *.deleted           a segment or snapshot that was being deleted: to be unlinked
    *.tmp               a small file that was not yet renamed over its predecessor: to be unlinked
    *.cleaned           output of a compaction or of a split that was not finished: to be unlinked
    *.swap              output that was finished, and replaces the segments it was made from
    *.index, *.timeindex, *.txnindex without the *.log they belong to: to be unlinked

Kafka renames all outputs of one job from .cleaned to .swap before it touches the originals, beginning with the
highest offset. So a .swap at or above a .cleaned belongs to a job that was not finished; any other is complete.
(Kafka's LogLoader.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.storage.segment.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
)

if TYPE_CHECKING:
    from gregor.storage.fs.files import Files

TEMPORARY_SUFFIX = ".tmp"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


def tidy_folder(files: Files, directory: str) -> tuple[dict[str, int], list[str]]:
    """Bring the folder of a partition to the state that a finished job would have left.

    Returns the sizes of the files that remain, by name, and the paths of those to be unlinked: on a thread, as they may
    be large. Only names are read, except for the .swap files, whose last batches are needed.
    """
    sizes = {entry.name: entry.size_bytes for entry in files.list_directory(directory) if not entry.is_directory}
    unlinkable: list[str] = []

    def discard(name: str) -> None:
        # Under another name, so that a new file of the old name is not removed by the later unlink.
        path = f"{directory}/{name}"
        if not name.endswith(DELETED_SUFFIX):
            files.rename(path, path + DELETED_SUFFIX)
            path += DELETED_SUFFIX
        unlinkable.append(path)
        del sizes[name]

    for name in [name for name in sizes if name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX))]:
        discard(name)
    cleaned = [name for name in sizes if name.endswith(CLEANED_SUFFIX)]
    swaps = [name for name in sizes if name.endswith(SWAP_SUFFIX)]
    if cleaned or swaps:
        first_cleaned = min((offset for name in cleaned if (offset := _offset(name)) is not None), default=None)
        for name in swaps.copy():
            offset = _offset(name)
            if offset is None or (first_cleaned is not None and offset >= first_cleaned):
                swaps.remove(name)
                discard(name)
        for name in cleaned:
            discard(name)
        start, end = _swapped_offsets(files, directory, swaps, sizes)
        for name in list(sizes):
            offset = _offset(name)
            if not name.endswith(SWAP_SUFFIX) and offset is not None and start <= offset < end:
                discard(name)
        # Indexes after their segments: if this is interrupted, too, the next start swaps them in.
        for name in sorted(swaps, key=lambda name: not name.endswith(LOG_SUFFIX + SWAP_SUFFIX)):
            target = name.removesuffix(SWAP_SUFFIX)
            files.rename(f"{directory}/{name}", f"{directory}/{target}")
            sizes[target] = sizes.pop(name)
    for name in list(sizes):
        if name.endswith(_INDEX_SUFFIXES) and name.rpartition(".")[0] + LOG_SUFFIX not in sizes:
            discard(name)
    return sizes, unlinkable


def _swapped_offsets(files: Files, directory: str, swaps: list[str], sizes: dict[str, int]) -> tuple[int, int]:
    """Return the range of offsets of the segments among the .swap files; (0, 0) without any."""
    starts, ends = [0], [0]
    for name in swaps:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            offset = _offset(name)
            if offset is not None:
                starts.append(offset)
                ends.append(_end_offset(files, directory, offset, sizes))
    return min(starts[1:], default=0), max(ends)


def _end_offset(files: Files, directory: str, offset: int, sizes: dict[str, int]) -> int:
    log_name = f"{offset:020d}{LOG_SUFFIX}{SWAP_SUFFIX}"
    segment = Segment.open(files, directory, offset, size_bytes=sizes[log_name], suffix=SWAP_SUFFIX)
    end_offset = offset
    if f"{offset:020d}{INDEX_SUFFIX}{SWAP_SUFFIX}" in sizes:
        end_offset = segment.read_next_offset()[0]
    if end_offset == offset:
        for batch in segment.scan(verify_crc=False):
            end_offset = batch.last_offset + 1
    segment.close()
    return end_offset


def _offset(name: str) -> int | None:
    """Return the offset in the name of a file; None if the name begins with something else."""
    stem = name.partition(".")[0]
    return int(stem) if stem.isascii() and stem.isdigit() and len(stem) <= 20 else None
