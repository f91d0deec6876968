"""DeleteRecords at the leader of a partition: the log start offset advances, and the followers' after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from gregor.replication.partition.partition import Partition

HIGH_WATERMARK = -1
"""As an offset in DeleteRecords."""


def delete_records_before(partition: Partition, offset: int) -> int:
    """Advance the log start offset to `offset`, or with HIGH_WATERMARK to the HW; returns that offset.

    The deletion is complete once `low_watermark` has reached it; watchers are called whenever that may have moved.
    Raises KafkaError: NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION (a topic that is only compacted), OFFSET_OUT_OF_RANGE.
    """
    log = partition.leadership.leader_log()
    if not log.config.delete:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{partition.topic} is compacted: its records are not deleted")
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}")
    log.retention.advance_log_start_offset(offset)
    partition.leadership.complete_delayed()
    return offset


def low_watermark(partition: Partition) -> int:
    """Return the smallest log start offset among the replicas in sync and the live ones: none serves records below it.

    -1 while one of these followers has not sent its log start offset.
    """
    return partition.in_sync.low_watermark(partition.log_start_offset)
