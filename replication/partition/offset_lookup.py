"""Offsets and leader epochs: what ListOffsets and OffsetForLeaderEpoch return, and where two logs diverge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from gregor.replication.partition.partition import Partition
    from gregor.storage.log.log import Log

CONSUMER, DEBUGGING = -1, -2
"""As replica ids in ListOffsets."""


def end_offset(
    partition: Partition, *, current_leader_epoch: int = -1, replica_id: int = CONSUMER, read_committed: bool = False
) -> int:
    """Return the HW for clients, or for isolation level read_committed the last stable offset; the
    log end offset for brokers and debugging tools, the latter also from a follower.

    Raises KafkaError: epoch errors of `Partition.check_epoch`, NOT_LEADER_OR_FOLLOWER.
    """
    partition.check_epoch(current_leader_epoch)
    if replica_id != DEBUGGING:
        partition.leadership.leader_log()
    if replica_id != CONSUMER:
        return partition.log_end_offset
    return partition.last_stable_offset if read_committed else partition.high_watermark


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
    return partition.leadership.leader_log().epoch_end_offset(leader_epoch)


def diverging_epoch(partition: Partition, last_fetched_epoch: int, offset: int) -> tuple[int, int] | None:
    """Return the (epoch, end offset) to which a reader must truncate before it can continue at `offset`, or None.

    `last_fetched_epoch` is the epoch of the reader's record before `offset`, which it sends from Fetch version 12 on;
    -1 without one (KIP-595). Raises KafkaError OFFSET_OUT_OF_RANGE when that epoch has no position in the log, and as
    `Leadership.leader_log` where there is no log.
    """
    if last_fetched_epoch < 0:
        return None
    log = partition.log or partition.leadership.leader_log()
    offsets = log.offsets
    if log.latest_epoch() == last_fetched_epoch and offsets.log_start_offset <= offset <= offsets.log_end_offset:
        return None  # nearly always
    epoch, end_offset = log.epoch_end_offset(last_fetched_epoch)
    if epoch < 0 or end_offset < 0 or offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {last_fetched_epoch}, offset {offset}")
    if epoch < last_fetched_epoch or end_offset < offset:
        return epoch, end_offset
    return None


def truncation_offset(log: Log, leader_epoch: int, leader_end_offset: int) -> int:
    """Return the offset to which a follower truncates `log`, towards the last one at which it agrees with its leader's.

    The leader returned its newest epoch that is not newer than the follower's last, and where it ends. If `log` does
    not have that epoch, its next older one is in the next request (KIP-279).
    """
    if leader_end_offset < 0:
        leader_end_offset = log.high_watermark  # the leader does not know it (as in Kafka)
    epoch, end_offset = log.epoch_end_offset(leader_epoch) if leader_epoch >= 0 else (-1, -1)
    agreed = min(log.log_end_offset, leader_end_offset if epoch < 0 else end_offset)
    if epoch == leader_epoch:
        agreed = min(agreed, leader_end_offset)
    return max(agreed, 0)
