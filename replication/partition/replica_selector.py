"""Selects the replica from which a consumer fetches: one in its rack (KIP-392). Kafka's RackAwareReplicaSelector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gregor.replication.partition.partition import Partition


RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The value of replica.selector.class with which consumers fetch from replicas in their rack."""


def preferred_read_replica(partition: Partition, offset: int, rack: str, racks: Mapping[int, str | None]) -> int | None:
    """Return the in-sync follower in the consumer's rack with the largest log end offset, or None for the leader.

    `racks` has the live brokers that the consumer can reach. A follower that does not have the offset does not count.
    """
    if not partition.is_leader or racks.get(partition.local_id) == rack:
        return None
    found = [
        (follower.log_end_offset, follower.last_caught_up_ms, follower.broker_id)
        for follower in partition.in_sync.followers_in_sync()
        if racks.get(follower.broker_id) == rack and follower.log_start_offset <= offset <= follower.log_end_offset
    ]
    return max(found)[2] if found else None
