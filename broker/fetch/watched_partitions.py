"""The partitions that a waiting fetch watches: whether a change may let another read find more, and how often it reads.

Watchers of a partition are called at each append (replication.partition.purgatory). Many appends do not concern a
consumer: its records are not committed yet, or belong to an open transaction. As in Apache Kafka's DelayedFetch only
offsets are compared then; a read of hundreds of partitions lasts milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gregor.replication.partition.partition import Partition
    from gregor.storage.log.log import Log

UpperOffset = Callable[["Log"], int]
"""The offset below which a fetch may read."""

REST_PER_PARTITION_S = 50e-6
"""Ten times as long as a read lasts."""
MIN_REST_S = 0.001
"""The resolution of the loop's timers. A fetch of fewer partitions than have such a rest reads at each change."""
MAX_REST_S = 0.1


class WatchedPartition:
    """Calls `moved` when the partition's upper offset, log, leadership or leader epoch is another one than before. A
    read must not precede the watch in an earlier turn of the loop."""

    __slots__ = ("_handle", "_moved", "_partition", "_seen", "_upper_offset")

    def __init__(self, partition: Partition, upper_offset: UpperOffset, moved: Callable[[], None]) -> None:
        self._partition = partition
        self._upper_offset = upper_offset
        self._moved = moved
        self._seen = self._present()
        self._handle = partition.delayed.watch(self._check)

    def unwatch(self) -> None:
        """Call `moved` no more."""
        self._partition.delayed.unwatch(self._handle)

    def _present(self) -> tuple[object, ...]:
        partition = self._partition
        log = partition.log
        upper_offset = -1 if log is None else self._upper_offset(log)
        return upper_offset, log, partition.leadership.log, partition.leader_epoch

    def _check(self) -> None:
        present = self._present()
        if present != self._seen:
            self._seen = present
            self._moved()


def rest_s(partition_count: int) -> float:
    """Return the time for which a fetch of so many partitions does not read again after a read that found too few
    records: with many it would use the loop for nothing else where each of them receives a little."""
    rest = min(partition_count * REST_PER_PARTITION_S, MAX_REST_S)
    return rest if rest >= MIN_REST_S else 0.0


def high_watermark(log: Log) -> int:
    """The upper offset of most consumers."""
    return log.offsets.high_watermark


def last_stable_offset(log: Log) -> int:
    """The upper offset of a consumer with isolation.level=read_committed."""
    return log.last_stable_offset


def log_end_offset(log: Log) -> int:
    """The upper offset of a follower."""
    return log.offsets.log_end_offset
