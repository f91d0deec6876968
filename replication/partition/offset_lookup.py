"""Offsets of a partition for the senders of ListOffsets and OffsetForLeaderEpoch requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gregor.replication.partition.partition import Partition

CONSUMER, DEBUGGING = -1, -2
"""As replica ids in ListOffsets."""


def end_offset(partition: Partition, *, current_leader_epoch: int = -1, replica_id: int = CONSUMER) -> int:
    """Return the HW for clients, the log end offset for brokers and debugging tools, the latter also from a follower.

    Raises KafkaError: epoch errors of `Partition.check_epoch`, NOT_LEADER_OR_FOLLOWER.
    """
    partition.check_epoch(current_leader_epoch)
    if replica_id != DEBUGGING:
        partition.check_leads()
    return partition.high_watermark if replica_id == CONSUMER else partition.log_end_offset


def hides_committed(partition: Partition) -> bool:
    """Whether records above the HW may be committed, and may have been read, already (KIP-207).

    The HW of a new leader lies below its epoch's first offset until its followers have fetched.
    """
    return partition.is_leader and partition.high_watermark < partition.in_sync.epoch_start_offset


def epoch_end_offset(partition: Partition, leader_epoch: int, *, current_leader_epoch: int = -1) -> tuple[int, int]:
    """Return (epoch, end offset) of the largest epoch up to `leader_epoch`, (-1, -1) unknown (KIP-101, KIP-279).

    Raises KafkaError: epoch errors of `Partition.check_epoch`, NOT_LEADER_OR_FOLLOWER.
    """
    partition.check_epoch(current_leader_epoch)
    return partition.leader_log().epoch_end_offset(leader_epoch)
