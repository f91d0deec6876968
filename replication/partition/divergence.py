"""Find where a follower's log and its leader's diverge, by their leader epochs (KIP-101, KIP-279, KIP-595)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from gregor.storage.log.log import Log


def diverging_epoch(log: Log, last_fetched_epoch: int, offset: int) -> tuple[int, int] | None:
    """Return the (epoch, end offset) to which a reader must truncate before it can continue at `offset`, or None.

    `last_fetched_epoch` is the epoch of the reader's record before `offset`. Raises KafkaError OFFSET_OUT_OF_RANGE
    when that epoch has no position in `log`.
    """
    epoch, end_offset = log.epoch_end_offset(last_fetched_epoch)
    if epoch < 0 or end_offset < 0 or offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {last_fetched_epoch}, offset {offset}")
    if epoch < last_fetched_epoch or end_offset < offset:
        return epoch, end_offset
    return None


def truncate_to_epoch(log: Log, leader_epoch: int, leader_end_offset: int, now_ms: int) -> None:
    """Truncate a follower's log towards the last offset at which it agrees with its leader's.

    The leader returned its newest epoch that is not newer than the follower's last, and where it ends. If `log` does
    not have that epoch, its next older one is in the next request (KIP-279). Raises KafkaError as the log does.
    """
    if leader_end_offset < 0:
        leader_end_offset = log.high_watermark  # the leader does not know it (as in Kafka)
    epoch, end_offset = log.epoch_end_offset(leader_epoch) if leader_epoch >= 0 else (-1, -1)
    agreed = min(log.log_end_offset, leader_end_offset if epoch < 0 else end_offset)
    if epoch == leader_epoch:
        agreed = min(agreed, leader_end_offset)
    log.truncate_to(max(agreed, 0), now_ms)
