"""The leader's state of one follower: its log end offset, and when it was last caught up with the leader.

The only input is the follower's own fetches: a fetch at offset N means that everything below N is in its log.
"""

from __future__ import annotations

UNKNOWN_OFFSET = -1


class FollowerState:
    """One remote replica, as known to its leader. Semantics: Kafka's `Replica` (the time-based lag of KIP-16).

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
        #: Of its registration, as in its last fetch; -1 where that did not contain it.
        self.broker_epoch = -1
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end_offset = 0
        self.last_fetch_ms = 0
        self.last_caught_up_ms = 0

    def fetched(self, offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Record a fetch at `offset` made while the leader's log ended at `leader_end_offset`."""
        if self.last_fetch_ms > now_ms or self.last_caught_up_ms > now_ms:
            self._clock_set_back(now_ms)
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
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
