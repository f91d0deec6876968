"""The division of the offsets of partitions among tasks, by the rule of Spark's class KafkaOffsetRangeCalculator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gregor.spark_jobs.arrow.plan import PartitionRange


def size_of(part: PartitionRange) -> int:
    """Return the number of offsets, at least that of the records."""
    return part.end_offset - part.start_offset


def divide(
    ranges: Sequence[PartitionRange], min_partitions: int | None, max_records_per_partition: int | None
) -> list[PartitionRange]:
    """Return what each task reads; empty ranges are dropped.

    Ranges of more than `max_records_per_partition` offsets are divided evenly. If fewer than `min_partitions` are
    left, large ones are divided in proportion to their size, so that there are about as many.
    """
    wanted = [part for part in ranges if size_of(part) > 0]
    if max_records_per_partition is not None:
        wanted = [
            piece for part in wanted for piece in _pieces(part, math.ceil(size_of(part) / max_records_per_partition))
        ]
    if min_partitions is None or len(wanted) >= min_partitions:
        return wanted
    total = sum(map(size_of, wanted))
    small = [part for part in wanted if _share(size_of(part), total, min_partitions) == 1]
    left = total - sum(map(size_of, small))
    left_partitions = max(min_partitions - len(small), 1)
    whole = set(small)
    return [
        piece
        for part in wanted
        for piece in _pieces(part, 1 if part in whole else _share(size_of(part), left, left_partitions))
    ]


def _share(size: int, total: int, partitions: int) -> int:
    """Return the number of pieces for a range, halves rounded up."""
    return max(math.floor(size / total * partitions + 0.5), 1)


def _pieces(part: PartitionRange, count: int) -> list[PartitionRange]:
    pieces = []
    start, left = part.start_offset, size_of(part)
    for number in range(count):
        size = left // (count - number)
        left -= size
        if size:
            pieces.append(replace(part, start_offset=start, end_offset=start + size))
        start += size
    return pieces
