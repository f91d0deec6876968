"""How much a micro-batch reads: maxOffsetsPerTrigger, minOffsetsPerTrigger and maxTriggerDelay, by Spark's rules."""

from __future__ import annotations

import math

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.source.offsets import Offsets


def capped(start: Offsets, latest: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Return the end of a batch of about `limit` offsets, shared in proportion to the backlogs of the partitions.

    A small partition is never starved: its share is rounded up to one. `start` has an offset for each partition of
    `latest`.
    """
    backlog = {
        partition: end - start[partition] for partition, end in latest.items() if end > start.get(partition, end)
    }
    total = sum(backlog.values())
    ends = dict(latest)
    for partition, size in backlog.items():
        share = limit * (size / total)
        ends[partition] = min(latest[partition], start[partition] + (math.ceil(share) if share < 1 else int(share)))
    return ends


class TriggerDelay:
    """Decides whether a batch waits for more records: until there are `min_offsets`, at most `max_delay_ms`."""

    def __init__(self, min_offsets: int, max_delay_ms: int) -> None:
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        self._last_batch_ms: float | None = None
        """As if a batch had been long ago: the first one does not wait."""

    def waits(self, start: Offsets, latest: Offsets, now_ms: float) -> bool:
        """Return whether no batch is to start now."""
        if self._last_batch_ms is not None and now_ms - self._last_batch_ms < self._max_delay_ms:
            new = sum(end - start.get(partition, 0) for partition, end in latest.items())
            if new < self._min_offsets:
                return True
        self._last_batch_ms = now_ms
        return False
