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
    """In a leader epoch of which nobody has seen the leader."""


def appended(log: Mapping[int, bytes], leaders: Leaders, observed: Collection[int]) -> Appended:
    """Count the records in the batches of each partition. `observed` are the ids of brokers."""
    counts = Appended(0, 0, 0)
    for partition, content in log.items():
        for batch in iter_batches(content):
            leader = leaders.get((partition, batch.leader_epoch))
            field = "unknown" if leader is None else "observed" if leader in observed else "others"
            counts = counts._replace(**{field: getattr(counts, field) + batch.record_count})
    return counts
