"""The brokers that appended the records of a log, as far as they are known, by the leader epochs in its batches."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from gregor.protocol.records.batch import iter_batches

Leaders = Mapping[tuple[int, int], int]
"""(partition, leader epoch) -> broker id."""


class Appended(NamedTuple):
    """Numbers of records in a log, by the broker that led when they were appended."""

    observed: int
    """By a broker whose counters are read."""
    others: int
    unknown: int
    """In a leader epoch whose leader was never seen."""


def appended(log: Mapping[int, bytes], leaders: Leaders, unobserved: Collection[int]) -> Appended:
    """Count the records in the batches of each partition. `unobserved` are the ids of brokers without counters; where
    there are none, the leader is an observed one, seen or not."""
    counts = Appended(0, 0, 0)
    for partition, content in log.items():
        for batch in iter_batches(content):
            leader = leaders.get((partition, batch.leader_epoch))
            if leader in unobserved:
                counts = counts._replace(others=counts.others + batch.record_count)
            elif leader is None and unobserved:
                counts = counts._replace(unknown=counts.unknown + batch.record_count)
            else:
                counts = counts._replace(observed=counts.observed + batch.record_count)
    return counts
