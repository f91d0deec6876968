"""A broker's leadership of a partition: the log that it leads, how far its records are committed, and who waits for it.

Rules of the high watermark (HW):

- HW = the smallest log end offset among the in-sync replicas and among followers about to rejoin them;
- the HW moves only while at least min(min.insync.replicas, replicas) are in sync (KAFKA-15583);
- the HW never falls while a broker leads, and lives in one place, `log.offsets.high_watermark`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from gregor.replication.partition.in_sync_replicas import InSyncReplicas
    from gregor.replication.partition.purgatory import Committed, DelayedOperations
    from gregor.storage.log.log import Log


class Leadership:
    """Begins and ends with the role of a replica. While another broker leads, `log` is None, delayed operations are
    answered with `error`, and watchers are still notified."""

    __slots__ = ("_delayed", "_in_sync", "_reported", "error", "log")

    def __init__(self, in_sync: InSyncReplicas, delayed: DelayedOperations) -> None:
        self._in_sync = in_sync
        self._delayed = delayed
        self.log: Log | None = None
        """The log that this broker leads; None: it does not lead."""
        self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        """The error for clients while this broker does not lead."""
        self._reported = -1, -1
        """The log start offset and the low watermark of which the watchers were last notified."""

    def begin(self, log: Log, now_ms: int) -> None:
        """Lead with this log and the followers of `in_sync`, or with others of both than before."""
        self.log = log
        self._reported = log.log_start_offset, self._in_sync.low_watermark(log.log_start_offset)
        self._in_sync.advance_high_watermark(log, now_ms)
        self.complete_delayed()

    def end(self, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Lead no more. Delayed requests get `error`."""
        self.log = None
        self.error = error
        self._in_sync.clear()
        self.complete_delayed()

    def replace_log(self, log: Log) -> None:
        """Continue with a copy of the log, if this broker leads."""
        if self.log is not None:
            self.log = log

    def leader_log(self) -> Log:
        """Return the log that this broker leads. Raises KafkaError NOT_LEADER_OR_FOLLOWER, or that of a failed disk."""
        if self.log is None:
            raise KafkaError(self.error)
        return self.log

    # -- commits -----------------------------------------------------------------------------------------------

    def when_committed(self, offset: int, callback: Committed) -> None:
        """Call `callback` once every record below `offset` is committed, or can no longer be.

        Argument of the call: NONE; NOT_ENOUGH_REPLICAS_AFTER_APPEND (committed, but by now fewer than
        min.insync.replicas are in sync); NOT_LEADER_OR_FOLLOWER or another error that ended the leadership. The call
        comes at once if that is decided already, or, inside another callback of this partition, right after that one.
        """
        if not self._delayed.running:
            error = self.verdict(offset)
            if error is not None:
                callback(error)
                return
        self._delayed.await_offset(offset, callback)

    def is_committed(self, offset: int) -> bool:
        """Return whether `when_committed` would call back at once, with NONE."""
        return not self._delayed.running and self.verdict(offset) is ErrorCode.NONE

    def verdict(self, offset: int) -> ErrorCode | None:
        """Return the answer to a request that waits until the records below `offset` are committed; None: not yet."""
        log, in_sync = self.log, self._in_sync
        if log is None:
            return self.error
        if log.offsets.high_watermark < offset:
            return None
        enough = not in_sync.followers or len(in_sync.maximal_isr) >= in_sync.effective_min_isr(log)
        return ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def complete_delayed(self) -> None:
        """Complete the delayed operations that are due, and notify the watchers."""
        if self._delayed.active:
            self._delayed.run(self.verdict)

    # -- progress of the followers -----------------------------------------------------------------------------

    def update_follower(
        self, replica_id: int, offset: int, now_ms: int, *, log_start_offset: int = -1, broker_epoch: int = -1
    ) -> None:
        """Record that a follower fetched at `offset`; the HW may move.

        `broker_epoch` is that of its registration, -1 for none. Raises KafkaError as `check_follows`.
        """
        log, in_sync = self.leader_log(), self._in_sync
        follower = in_sync.followers.get(replica_id)
        if follower is None:
            self.check_follows(replica_id)
            return
        before, start_before = follower.log_end_offset, follower.log_start_offset
        follower.fetched(offset, log_start_offset, log.offsets.log_end_offset, now_ms, broker_epoch)
        moved = before != offset and in_sync.advance_high_watermark(log, now_ms)
        if (moved or log_start_offset != start_before) and self._delayed.active:
            self._delayed.run(self.verdict)

    def check_follows(self, replica_id: int) -> None:
        """Raise KafkaError UNKNOWN_LEADER_EPOCH for a broker that is not known as a replica yet: it fetches again."""
        if replica_id not in self._in_sync.followers:
            self.leader_log()
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"broker {replica_id} is not a replica")

    def commit_isr(self, isr: Sequence[int], now_ms: int) -> None:
        """Apply the ISR that the controller committed; the HW and the low watermark may move."""
        self._in_sync.commit(isr)
        if self.log is not None:
            self._in_sync.advance_high_watermark(self.log, now_ms)
            self.complete_delayed()

    def isr_refused(self, now_ms: int) -> None:
        """Drop the proposed change, which the controller does not make; the committed ISR counts again."""
        self.commit_isr(self._in_sync.isr, now_ms)

    def check_progress(self, now_ms: int) -> None:
        """Advance the HW where time or the death of a broker allows it, and notify watchers of a new log start offset
        or low watermark.

        A follower that lagged or died holds the HW and the low watermark back no more, though no fetch of the others,
        which are caught up, comes to advance them; retention may have advanced the start.
        """
        log, in_sync = self.log, self._in_sync
        if log is None or not in_sync.followers:
            return
        start_offset = log.log_start_offset
        before, self._reported = self._reported, (start_offset, in_sync.low_watermark(start_offset))
        moved = in_sync.advance_high_watermark(log, now_ms)
        if moved or before != self._reported:
            self.complete_delayed()
