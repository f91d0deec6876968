"""The followers of a partition and its in-sync set (ISR), as the leader knows them, and the high watermark (HW).

Rules: Kafka's Partition with its CommittedPartitionState and PendingPartitionChange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gregor.storage.log.log import Log


UNKNOWN_OFFSET = -1


class FollowerState:
    """One remote replica, as known to its leader. The only input is the follower's own fetches: a fetch at offset N
    means that everything below N is in its log. Semantics: Kafka's `Replica` (the time-based lag of KIP-16).

    `last_caught_up_ms` is the largest time t for which the newest fetch offset reached the leader's log end
    offset at t. It may lie before the newest fetch: under steady load a follower is always a little behind
    the present end, but it has reached the end as it was one fetch ago, and that counts as in sync.
    """

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1
        """Of its registration, as in its last fetch; -1 where that did not contain it."""
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end_offset = 0
        self.last_fetch_ms = 0
        self.last_caught_up_ms = 0

    def fetched(
        self, offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int, broker_epoch: int = -1
    ) -> None:
        """Record a fetch at `offset` made while the leader's log ended at `leader_end_offset`. `broker_epoch`: of the
        follower's registration, -1 where the fetch does not contain it."""
        if self.last_fetch_ms > now_ms or self.last_caught_up_ms > now_ms:
            self._clock_set_back(now_ms)
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.last_fetch_leader_end_offset = max(leader_end_offset, self.last_fetch_leader_end_offset)
        self.last_fetch_ms = now_ms

    def leader_epoch_began(self, leader_end_offset: int, newly_leader: bool, in_isr: bool, now_ms: int) -> None:
        """Start afresh for a new leader epoch.

        ISR members get a full lag period of grace. Others count as never caught up, so that they neither hold
        the high watermark back nor rejoin before they fetch.
        """
        self.last_caught_up_ms = now_ms if in_isr else 0
        if newly_leader:
            self.broker_epoch = -1
            self.log_end_offset = UNKNOWN_OFFSET
            self.log_start_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_end_offset = UNKNOWN_OFFSET
            self.last_fetch_ms = 0
        else:
            self.last_fetch_leader_end_offset = leader_end_offset
            self.last_fetch_ms = now_ms if in_isr else 0

    def caught_up(self, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        if self.last_caught_up_ms > now_ms:
            self._clock_set_back(now_ms)
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_time_max_ms

    def _clock_set_back(self, now_ms: int) -> None:
        """Set times in the future to now: otherwise a follower that stopped stays in sync until then."""
        self.last_caught_up_ms = min(self.last_caught_up_ms, now_ms)
        self.last_fetch_ms = min(self.last_fetch_ms, now_ms)


class InSyncReplicas:
    """State of a leader; empty on a follower (as in Kafka).

    While an ISR change is proposed but not yet decided, the larger of both sets counts for the HW ("maximal" ISR,
    KIP-497): whichever way the controller decides, nothing uncommitted was shown.
    """

    __slots__ = (
        "_is_alive",
        "_lag_time_max_ms",
        "_local_id",
        "epoch_start_offset",
        "followers",
        "isr",
        "maximal_isr",
        "proposed_isr",
    )

    def __init__(self, local_id: int, lag_time_max_ms: int, is_alive: Callable[[int], bool]) -> None:
        self._local_id = local_id
        self._lag_time_max_ms = lag_time_max_ms
        self._is_alive = is_alive
        self.clear()

    def clear(self) -> None:
        """Forget the followers and the sets: this broker does not lead."""
        self.isr: list[int] = []
        self.maximal_isr: frozenset[int] = frozenset()
        self.proposed_isr: list[int] | None = None
        """Proposed and not decided yet; None also where newer metadata made the proposal void."""
        self.followers: dict[int, FollowerState] = {}
        self.epoch_start_offset = -1
        """First offset of the leader epoch in which this broker leads."""

    # -- the sets ----------------------------------------------------------------------------------------------

    def assign(self, replicas: Sequence[int], isr: Sequence[int]) -> None:
        """Replace both sets by those that the controller sent. Followers that stay keep their positions."""
        self.commit(isr)
        followers = [broker_id for broker_id in replicas if broker_id != self._local_id]
        self.followers = {id_: self.followers.get(id_) or FollowerState(id_) for id_ in followers}

    def begin_epoch(self, start_offset: int, newly_leader: bool, now_ms: int) -> None:
        """Start the followers' positions afresh for a leader epoch that begins at `start_offset`."""
        self.epoch_start_offset = start_offset
        for follower in self.followers.values():
            in_isr = follower.broker_id in self.maximal_isr
            follower.leader_epoch_began(start_offset, newly_leader, in_isr, now_ms)

    def propose(self, isr: list[int]) -> None:
        """Record that an ISR change is on its way to the controller; until it is decided no other may be proposed."""
        self.proposed_isr = isr
        self.maximal_isr = frozenset(self.isr) | frozenset(isr)

    def commit(self, isr: Sequence[int]) -> None:
        """Make `isr` the committed set; no proposal is pending any more."""
        self.isr = list(isr)
        self.proposed_isr = None
        self.maximal_isr = frozenset(isr)

    def isr_to_expand(self, replica_id: int, high_watermark: int) -> list[int] | None:
        """Return the ISR to propose now that `replica_id` has fetched, or None.

        It must have reached the HW and this epoch's first offset: below that, records committed by an earlier leader
        could be missing on it, and lost if it were elected.
        """
        follower = self.followers.get(replica_id)
        if follower is None or self.proposed_isr is not None or replica_id in self.maximal_isr:
            return None
        reached = follower.log_end_offset >= max(high_watermark, self.epoch_start_offset)
        return [*self.isr, replica_id] if reached and self._is_alive(replica_id) else None

    def isr_to_shrink(self, log_end_offset: int, now_ms: int) -> list[int] | None:
        """Return the ISR to propose without the followers that lag for longer than replica.lag.time.max.ms, or None."""
        if self.proposed_isr is not None:
            return None
        remaining = [broker_id for broker_id in self.isr if self.keeps_up(broker_id, log_end_offset, now_ms)]
        return remaining if len(remaining) < len(self.isr) else None

    def keeps_up(self, broker_id: int, log_end_offset: int, now_ms: int) -> bool:
        """Whether a replica lags for no longer than replica.lag.time.max.ms."""
        if broker_id == self._local_id:
            return True
        follower = self.followers.get(broker_id)
        return follower is not None and follower.caught_up(log_end_offset, now_ms, self._lag_time_max_ms)

    # -- the followers -----------------------------------------------------------------------------------------

    def stays_in_sync(self, replica_id: int, offset: int) -> bool:
        """Whether a follower is known to be at `offset`, is in the ISR, and stays in it with a pending change."""
        follower = self.followers.get(replica_id)
        is_there = follower is not None and follower.log_end_offset == offset and replica_id in self.isr
        return is_there and (self.proposed_isr is None or replica_id in self.proposed_isr)

    def record_caught_up(self, replica_id: int, offset: int, last_fetch_ms: int) -> None:
        """Count the last fetch of a follower in sync as one of this partition, which it did not name.

        `offset` was the log end offset until just now; a follower at another position stays as it is.
        """
        follower = self.followers.get(replica_id)
        if follower is not None and follower.log_end_offset == offset:
            follower.fetched(offset, follower.log_start_offset, offset, last_fetch_ms, follower.broker_epoch)

    def broker_epoch(self, replica_id: int) -> int:
        """Return the broker epoch with which a follower fetched last, -1 where it is not known."""
        follower = self.followers.get(replica_id)
        return -1 if follower is None else follower.broker_epoch

    def followers_in_sync(self) -> list[FollowerState]:
        return [follower for follower in self.followers.values() if follower.broker_id in self.isr]

    # -- offsets -----------------------------------------------------------------------------------------------

    def effective_min_isr(self, log: Log) -> int:
        """Return min.insync.replicas, at most the number of replicas (as in Kafka): more could never be in sync."""
        return min(log.config.min_insync_replicas, len(self.followers) + 1)

    def low_watermark(self, log_start_offset: int) -> int:
        """Return the smallest log start offset of the leader, whose is given, the followers in sync and the live ones.

        A follower in sync counts even if it is not alive: it may be the next leader, or lead already, while this broker
        has not received that it was deposed. (Apache Kafka counts live followers only: records that were deleted there
        return.)
        """
        lowest = log_start_offset
        for follower in self.followers.values():
            if follower.log_start_offset < lowest and (
                follower.broker_id in self.maximal_isr or self._is_alive(follower.broker_id)
            ):
                lowest = follower.log_start_offset
        return lowest

    def advance_high_watermark(self, log: Log, now_ms: int) -> bool:
        """Raise the HW of the leader's log as far as the replicas allow. True if it moved."""
        if len(self.isr) < self.effective_min_isr(log):
            return False
        offsets = log.offsets
        end_offset = new = offsets.log_end_offset
        for follower in self.followers.values():
            position = follower.log_end_offset
            # A caught-up follower outside the ISR holds the HW back: otherwise the HW would stay ahead of it, and it
            # could never join.
            if position < new and (
                follower.broker_id in self.maximal_isr
                or (
                    follower.caught_up(end_offset, now_ms, self._lag_time_max_ms) and self._is_alive(follower.broker_id)
                )
            ):
                new = position
        if new <= offsets.high_watermark:
            return False
        offsets.set_high_watermark(new)
        return True
