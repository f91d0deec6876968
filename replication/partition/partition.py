"""One partition replica on this broker: who leads it, who is in sync, and how far its records are committed.

Pure decisions; the bytes are the log's. Owner of the high watermark (HW):

- HW = the smallest log end offset among the in-sync replicas and among followers about to rejoin them;
- the HW moves only while at least min(min.insync.replicas, replicas) are in sync (KAFKA-15583);
- the HW never falls while a broker leads, and lives in one place, `log.offsets.high_watermark`.

Not thread-safe: everything runs on the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import Uuid
from gregor.replication.partition.follower_state import FollowerState
from gregor.replication.partition.purgatory import Committed, DelayedOperations, Watcher

if TYPE_CHECKING:
    from gregor.protocol.messages import LeaderAndIsrRequest
    from gregor.storage.log.log import AppendInfo, Log, LogSlice

NO_LEADER = -1
NO_EPOCH = -1
HIGH_WATERMARK = -1
"""As an offset in DeleteRecords."""
CONSUMER, DEBUGGING = -1, -2
"""As replica ids in ListOffsets."""
DEFAULT_LAG_TIME_MAX_MS = 30_000


def _everybody_alive(_broker_id: int) -> bool:
    return True


class Partition:
    """State and rules of one replica.

    `isr` is the committed in-sync set, known to the leader only (empty on followers, as in Kafka). While an
    ISR change is proposed but not yet decided, the larger of both sets counts for the HW ("maximal" ISR,
    KIP-497): whichever way the controller decides, nothing uncommitted was shown.
    """

    __slots__ = (
        "_delayed",
        "_followers",
        "_is_alive",
        "_known_start",
        "_lag_time_max_ms",
        "_maximal_isr",
        "_proposed_isr",
        "_resigned_with",
        "_sole_leader",
        "adding_replicas",
        "controller_epoch",
        "epoch_start_offset",
        "is_leader",
        "isr",
        "leader_epoch",
        "leader_id",
        "local_id",
        "log",
        "partition",
        "partition_epoch",
        "removing_replicas",
        "replicas",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        topic_id: Uuid,
        local_id: int,
        *,
        lag_time_max_ms: int = DEFAULT_LAG_TIME_MAX_MS,
        is_alive: Callable[[int], bool] = _everybody_alive,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.local_id = local_id
        self.log: Log | None = None
        self.is_leader = False
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.controller_epoch = -1
        self.epoch_start_offset = -1
        self.isr: list[int] = []
        self.replicas: list[int] = []
        self.adding_replicas: list[int] = []
        self.removing_replicas: list[int] = []
        self._followers: dict[int, FollowerState] = {}
        self._maximal_isr: frozenset[int] = frozenset()
        self._proposed_isr: list[int] | None = None
        self._resigned_with = ErrorCode.NOT_LEADER_OR_FOLLOWER
        # Leader of a partition with no other replica: the HW is the log end offset, always.
        self._sole_leader = False
        self._known_start = -1
        self._delayed = DelayedOperations()
        self._lag_time_max_ms = lag_time_max_ms
        self._is_alive = is_alive

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.partition} leader={self.leader_id} epoch={self.leader_epoch}>"

    # -- positions ---------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """Consumers see offsets below it. -1 without a log."""
        log = self.log
        return -1 if log is None else log.offsets.high_watermark

    @property
    def log_end_offset(self) -> int:
        log = self.log
        return -1 if log is None else log.offsets.log_end_offset

    @property
    def log_start_offset(self) -> int:
        log = self.log
        return -1 if log is None else log.offsets.log_start_offset

    @property
    def last_stable_offset(self) -> int:
        """The end of what read_committed consumers see: the HW, as no transaction is ever open."""
        return self.high_watermark

    @property
    def commits_at_once(self) -> bool:
        """Leader without followers: what `append` returns from is committed. Changes only with a leadership request."""
        return self._sole_leader

    @property
    def under_replicated(self) -> bool:
        assigned = len(self.replicas) - len(self.adding_replicas)
        return self.is_leader and len(self.isr) < assigned

    @property
    def under_min_isr(self) -> bool:
        return self.is_leader and len(self.isr) < self._effective_min_isr()

    def _effective_min_isr(self) -> int:
        # A setting above the replication factor could never be met; it counts as "all replicas" (as in Kafka).
        assert self.log is not None
        return min(self.log.config.min_insync_replicas, len(self._followers) + 1)

    # -- writing -----------------------------------------------------------------------------------------------

    def append(
        self, records: memoryview | bytes | bytearray, now_ms: int, required_acks: int, *, from_client: bool = True
    ) -> AppendInfo:
        """Append one batch as the leader.

        With a single replica the records are committed when this returns. Otherwise, for acks=all, pass
        `info.last_offset + 1` to `when_committed`. Waiting callbacks run before this returns.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER; NOT_ENOUGH_REPLICAS (acks=all and too few in sync, nothing
        written); and whatever the log refuses.
        """
        # Hot path: one flag decides; nothing is allocated but what the log returns.
        if self._sole_leader:
            log = self.log
            info = log.append_as_leader(records, self.leader_epoch, now_ms, from_client=from_client)  # type: ignore[union-attr]
            log.offsets.high_watermark = log.offsets.log_end_offset  # type: ignore[union-attr]
            if self._delayed.active:
                self._delayed.run(self._commit_verdict)
            return info
        return self._append_replicated(records, now_ms, required_acks, from_client)

    def _append_replicated(
        self, records: memoryview | bytes | bytearray, now_ms: int, required_acks: int, from_client: bool
    ) -> AppendInfo:
        log = self._leader_log()
        if (
            required_acks == -1
            and len(self.isr) < log.config.min_insync_replicas
            and len(self.isr) < self._effective_min_isr()
        ):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic}-{self.partition}: {len(self.isr)} in sync, {self._effective_min_isr()} required",
            )
        info = log.append_as_leader(records, self.leader_epoch, now_ms, from_client=from_client)
        if len(self._maximal_isr) > 1:
            # Committed when the others have fetched it, not before.
            if self._delayed.active:
                self._delayed.stir(self._commit_verdict)
        elif self._advance_high_watermark(now_ms) or self._delayed.active:
            self._delayed.run(self._commit_verdict)
        return info

    def when_committed(self, offset: int, callback: Committed) -> None:
        """Call `callback` once every record below `offset` is committed, or can no longer be.

        Argument of the call: NONE; NOT_ENOUGH_REPLICAS_AFTER_APPEND (committed, but by now fewer than
        min.insync.replicas are in sync); NOT_LEADER_OR_FOLLOWER or whatever ended the leadership. It is called
        at once when already decided, or, inside another callback of this partition, right after that one.
        """
        if not self._delayed.running:
            error = self._commit_verdict(offset)
            if error is not None:
                callback(error)
                return
        self._delayed.await_offset(offset, callback)

    def _commit_verdict(self, offset: int) -> ErrorCode | None:
        if not self.is_leader or self.log is None:
            return self._resigned_with
        if self.log.offsets.high_watermark < offset:
            return None
        if self._sole_leader or len(self._maximal_isr) >= self._effective_min_isr():
            return ErrorCode.NONE
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def watch(self, callback: Watcher) -> int:
        """Call `callback` after each append, advance of the HW or the low watermark, and change of leadership, until
        `unwatch(handle)`."""
        return self._delayed.watch(callback)

    def unwatch(self, handle: int) -> None:
        self._delayed.unwatch(handle)

    # -- deleting records --------------------------------------------------------------------------------------

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset among the live replicas: no copy holds anything below it that is still served.
        -1 while a live follower has not said where it starts."""
        lowest = self.log_start_offset
        for follower in self._followers.values():
            if follower.log_start_offset < lowest and self._is_alive(follower.broker_id):
                lowest = follower.log_start_offset
        return lowest

    def delete_records(self, offset: int) -> int:
        """Hide everything below `offset`, HIGH_WATERMARK for all that is committed; returns the offset that was meant.

        It is done once `low_watermark` has reached that; watchers are called whenever it may have moved. Raises
        KafkaError: NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION (a topic that is only compacted), OFFSET_OUT_OF_RANGE.
        """
        log = self._leader_log()
        if not log.config.delete:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{self.topic} is compacted: its records are not deleted")
        if offset == HIGH_WATERMARK:
            offset = log.high_watermark
        if offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}")
        log.advance_log_start_offset(offset)
        if self._delayed.active:
            self._delayed.run(self._commit_verdict)
        return offset

    # -- reading -----------------------------------------------------------------------------------------------

    def check_leads(self) -> None:
        """Raises KafkaError NOT_LEADER_OR_FOLLOWER, or what ended the replica: KAFKA_STORAGE_ERROR on a failed disk."""
        self._leader_log()

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Compare the epoch a client or follower believes in (-1: it does not say) with ours.

        Raises KafkaError FENCED_LEADER_EPOCH (theirs is older) or UNKNOWN_LEADER_EPOCH (theirs is newer).
        """
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch is {self.leader_epoch}")
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch is {self.leader_epoch}")

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        current_leader_epoch: int = -1,
        replica_id: int = -1,
        min_one_batch: bool = True,
        waits_for_disk: bool = True,
        leader_only: bool = True,
    ) -> LogSlice:
        """Records from `offset` on: for consumers (replica_id < 0) below the HW, for followers to the log's end.
        Without `leader_only` a follower gives them, too, as far as it knows them to be committed (KIP-392).

        Raises KafkaError: epoch errors of `check_epoch`, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE. Without
        `waits_for_disk` also NotCached.
        """
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            self.check_epoch(current_leader_epoch)
        log = self.log
        if log is None or (leader_only and not self.is_leader):
            raise KafkaError(self._resigned_with)
        upper_offset = log.offsets.high_watermark if replica_id < 0 else log.offsets.log_end_offset
        return log.read(offset, max_bytes, upper_offset, min_one_batch, waits_for_disk)

    def end_offset(self, *, current_leader_epoch: int = -1, replica_id: int = CONSUMER) -> int:
        """How far the asker may look: clients to the HW, brokers and debugging tools to the log's end. The latter are
        answered by followers, too. Raises KafkaError: epoch errors of `check_epoch`, NOT_LEADER_OR_FOLLOWER."""
        self.check_epoch(current_leader_epoch)
        if replica_id != DEBUGGING:
            self.check_leads()
        return self.high_watermark if replica_id == CONSUMER else self.log_end_offset

    @property
    def hides_committed(self) -> bool:
        """A fresh leader's HW lies before its epoch's first offset, until its followers have fetched: there may be more
        that is committed, and was seen, than a client is told now (KIP-207)."""
        return self.is_leader and self.high_watermark < self.epoch_start_offset

    def epoch_end_offset(self, leader_epoch: int, *, current_leader_epoch: int = -1) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch up to `leader_epoch`, (-1, -1) unknown (KIP-101, KIP-279)."""
        self.check_epoch(current_leader_epoch)
        return self._leader_log().epoch_end_offset(leader_epoch)

    def diverging_epoch(self, last_fetched_epoch: int, offset: int) -> tuple[int, int] | None:
        """(epoch, end offset) to which a reader must truncate before it can continue at `offset`, or None.

        From Fetch version 12 the reader names the epoch of the record before `offset` (KIP-595). Raises KafkaError
        OFFSET_OUT_OF_RANGE when that epoch cannot be placed in our log.
        """
        if last_fetched_epoch < 0:
            return None
        if self.log is None:
            raise KafkaError(self._resigned_with)
        log, offsets = self.log, self.log.offsets
        if log.latest_epoch() == last_fetched_epoch and offsets.log_start_offset <= offset <= offsets.log_end_offset:
            return None  # nearly always
        epoch, end_offset = log.epoch_end_offset(last_fetched_epoch)
        if epoch < 0 or end_offset < 0 or offset < offsets.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {last_fetched_epoch}, offset {offset}")
        if epoch < last_fetched_epoch or end_offset < offset:
            return epoch, end_offset
        return None

    def followers_in_sync(self) -> list[FollowerState]:
        """Empty where this broker does not lead."""
        return [follower for follower in self._followers.values() if follower.broker_id in self.isr]

    # -- leadership --------------------------------------------------------------------------------------------

    def become_leader(self, state: LeaderAndIsrRequest.LeaderAndIsrPartitionState, now_ms: int) -> bool:
        """Lead from now on, as the controller says. `log` must be set. True if it did not lead before.

        A state with an older partition epoch than ours is ignored: it was overtaken by our own ISR change.
        """
        if state.partition_epoch < self.partition_epoch:
            return False
        log = self.log
        assert log is not None
        newly_leader = not self.is_leader
        # Also where it led in this epoch before its log was away for a time.
        begins = newly_leader or state.leader_epoch > self.leader_epoch
        self._set_assignment(state)
        self.isr = list(state.isr)
        self._maximal_isr = frozenset(state.isr)
        followers = [broker_id for broker_id in state.replicas if broker_id != self.local_id]
        self._followers = {id_: self._followers.get(id_) or FollowerState(id_) for id_ in followers}
        if begins:
            start_offset = log.log_end_offset
            latest = log.latest_epoch()
            # Followers truncate by this table: the epoch must be in it before its first record is.
            if latest is None or latest < state.leader_epoch:
                log.assign_epoch(state.leader_epoch, start_offset)
            for follower in self._followers.values():
                in_isr = follower.broker_id in self._maximal_isr
                follower.leader_epoch_began(start_offset, newly_leader, in_isr, now_ms)
            self.leader_epoch = state.leader_epoch
            self.epoch_start_offset = start_offset
        self.leader_id = self.local_id
        self.is_leader = True
        self._sole_leader = not followers
        self._known_start = log.log_start_offset
        self._advance_high_watermark(now_ms)
        self._delayed.run(self._commit_verdict)
        return newly_leader

    def become_follower(self, state: LeaderAndIsrRequest.LeaderAndIsrPartitionState) -> bool:
        """Follow `state.leader` (-1: nobody leads). True if the leader epoch is new, so that fetching must restart.

        Whoever waits for a commit gets NOT_LEADER_OR_FOLLOWER. Truncation is the fetcher's.
        """
        if state.partition_epoch < self.partition_epoch:
            return False
        new_epoch = state.leader_epoch > self.leader_epoch
        self._set_assignment(state)
        self._resign()
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self._delayed.run(self._commit_verdict)
        return new_epoch

    # -- following ---------------------------------------------------------------------------------------------

    def append_as_follower(
        self,
        records: memoryview | bytes | bytearray,
        leader_high_watermark: int,
        leader_log_start_offset: int,
        now_ms: int,
    ) -> None:
        """Write what the leader sent, and take over how far it is committed and where it begins.

        Whoever reads from this replica, or waits for more, is told. Raises KafkaError as the log does.
        """
        assert self.log is not None
        log, offsets = self.log, self.log.offsets
        if len(records):
            if offsets.log_start_offset == offsets.log_end_offset:
                log.begin_with(records, now_ms)
            log.append_as_follower(records, now_ms)
        before = offsets.high_watermark, offsets.log_start_offset
        offsets.high_watermark = min(max(leader_high_watermark, offsets.log_start_offset), offsets.log_end_offset)
        start_offset = min(leader_log_start_offset, offsets.high_watermark)
        if start_offset > offsets.log_start_offset:
            log.advance_log_start_offset(start_offset)
        if self._delayed.active and before != (offsets.high_watermark, offsets.log_start_offset):
            self._delayed.run(self._commit_verdict)

    def truncate_to_epoch(self, leader_epoch: int, leader_end_offset: int, now_ms: int) -> None:
        """Cut the log back towards the last place where it and the leader's agree: the leader says where its newest
        epoch ends that is not newer than our last. If we do not know that epoch, our next older one is what the next
        request asks about (KIP-279). Raises KafkaError as the log does."""
        log = self.log
        assert log is not None
        if leader_end_offset < 0:
            leader_end_offset = log.high_watermark  # it cannot tell (as in Kafka)
        epoch, end_offset = log.epoch_end_offset(leader_epoch) if leader_epoch >= 0 else (-1, -1)
        place = min(log.log_end_offset, leader_end_offset if epoch < 0 else end_offset)
        if epoch == leader_epoch:
            place = min(place, leader_end_offset)
        log.truncate_to(max(place, 0), now_ms)

    def offline(self, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Stop serving: deleted, moved away, or its disk failed. Waiting acknowledgements get `error`."""
        self._resign()
        self._resigned_with = error
        self.leader_id = NO_LEADER
        self.log = None
        self._delayed.run(self._commit_verdict)

    def _set_assignment(self, state: LeaderAndIsrRequest.LeaderAndIsrPartitionState) -> None:
        self.controller_epoch = state.controller_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = list(state.replicas)
        self.adding_replicas = list(state.adding_replicas)
        self.removing_replicas = list(state.removing_replicas)
        self._proposed_isr = None

    def _resign(self) -> None:
        self.is_leader = False
        self._resigned_with = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._sole_leader = False
        self.epoch_start_offset = -1
        self.isr = []
        self._maximal_isr = frozenset()
        self._proposed_isr = None
        self._followers = {}

    def _leader_log(self) -> Log:
        log = self.log
        if log is None or not self.is_leader:
            raise KafkaError(self._resigned_with)
        return log

    # -- in-sync replicas --------------------------------------------------------------------------------------

    def update_follower(
        self, replica_id: int, offset: int, now_ms: int, *, log_start_offset: int = -1, broker_epoch: int = -1
    ) -> None:
        """A follower fetched at `offset`; the HW may move. Afterwards ask `isr_to_expand`.

        `broker_epoch`: of its registration, -1 where it does not say. Raises KafkaError as `check_follows`.
        """
        log = self._leader_log()
        follower = self._followers.get(replica_id)
        if follower is None:
            self.check_follows(replica_id)
            return
        before, start_before = follower.log_end_offset, follower.log_start_offset
        follower.fetched(offset, log_start_offset, log.offsets.log_end_offset, now_ms)
        follower.broker_epoch = broker_epoch
        moved = before != offset and self._advance_high_watermark(now_ms)
        if (moved or log_start_offset != start_before) and self._delayed.active:
            self._delayed.run(self._commit_verdict)

    def check_follows(self, replica_id: int) -> None:
        """Raises KafkaError UNKNOWN_LEADER_EPOCH for a broker that is no replica here yet, as far as is known: it will
        ask again."""
        if replica_id not in self._followers:
            self.check_leads()
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"broker {replica_id} is not a replica")

    def follower_was_level(self, replica_id: int, offset: int, last_fetch_ms: int) -> None:
        """A follower in step, whose fetches did not mention this partition any more, was at `offset`, the log's end
        until just now, when it last asked for anything."""
        follower = self._followers.get(replica_id)
        if follower is not None and follower.log_end_offset == offset:
            follower.fetched(offset, follower.log_start_offset, offset, last_fetch_ms)

    def follower_epoch(self, replica_id: int) -> int:
        """The broker epoch with which a replica fetched last, -1 where it is not known."""
        follower = self._followers.get(replica_id)
        return -1 if follower is None else follower.broker_epoch

    def isr_to_expand(self, replica_id: int) -> list[int] | None:
        """The ISR to propose now that `replica_id` fetched, or None.

        It must have reached the HW and this epoch's first offset: below that, records committed by an earlier
        leader could be missing on it, and lost if it were elected.
        """
        follower = self._followers.get(replica_id)
        if follower is None or self._proposed_isr is not None or replica_id in self._maximal_isr:
            return None
        reached = follower.log_end_offset >= max(self.high_watermark, self.epoch_start_offset)
        return [*self.isr, replica_id] if reached and self._is_alive(replica_id) else None

    def isr_to_shrink(self, now_ms: int) -> list[int] | None:
        """The ISR to propose without the followers that lag for longer than replica.lag.time.max.ms, or None."""
        if not self.is_leader or self._proposed_isr is not None:
            return None
        remaining = [broker_id for broker_id in self.isr if self._in_sync(broker_id, now_ms)]
        return remaining if len(remaining) < len(self.isr) else None

    def _in_sync(self, broker_id: int, now_ms: int) -> bool:
        if broker_id == self.local_id:
            return True
        follower = self._followers.get(broker_id)
        return follower is not None and follower.caught_up(self.log_end_offset, now_ms, self._lag_time_max_ms)

    def propose_isr(self, isr: list[int]) -> None:
        """An ISR change is on its way to the controller; until it is decided no other may be proposed."""
        self._proposed_isr = isr
        self._maximal_isr = frozenset(self.isr) | frozenset(isr)

    def is_in_step(self, replica_id: int, offset: int) -> bool:
        """Whether it is known to be at `offset`, is in the ISR, and no change that takes it out is on its way."""
        follower = self._followers.get(replica_id)
        is_there = follower is not None and follower.log_end_offset == offset and replica_id in self.isr
        return is_there and (self._proposed_isr is None or replica_id in self._proposed_isr)

    @property
    def proposed_isr(self) -> list[int] | None:
        """What was proposed and is not decided yet; None also when newer metadata made it void."""
        return self._proposed_isr

    def isr_decided(self, isr: list[int], partition_epoch: int, now_ms: int) -> None:
        """The controller committed `isr`. Answers that a newer partition epoch overtook are ignored."""
        if not self.is_leader or partition_epoch <= self.partition_epoch:
            return
        self.partition_epoch = partition_epoch
        self.isr = list(isr)
        self._proposed_isr = None
        self._maximal_isr = frozenset(isr)
        if self._advance_high_watermark(now_ms) and self._delayed.active:
            self._delayed.run(self._commit_verdict)

    def isr_refused(self, now_ms: int) -> None:
        """The proposed change will not happen; the committed ISR counts again."""
        self._proposed_isr = None
        self._maximal_isr = frozenset(self.isr)
        if self.is_leader and self._advance_high_watermark(now_ms) and self._delayed.active:
            self._delayed.run(self._commit_verdict)

    def look_again(self, now_ms: int) -> None:
        """Time has passed, or a broker is gone: the HW need no longer wait for whom it waited for, and retention may
        have moved the log's start. Followers that are level would not ask."""
        if not self.is_leader or self._sole_leader or self.log is None:
            return
        before, self._known_start = self._known_start, self.log.log_start_offset
        if (self._advance_high_watermark(now_ms) or before != self._known_start) and self._delayed.active:
            self._delayed.run(self._commit_verdict)

    def _advance_high_watermark(self, now_ms: int) -> bool:
        assert self.log is not None
        if self.under_min_isr:
            return False
        offsets = self.log.offsets
        end_offset = new = offsets.log_end_offset
        for follower in self._followers.values():
            position = follower.log_end_offset
            # A caught-up follower outside the ISR is waited for: else the HW would run ahead of it for ever.
            if position < new and (
                follower.broker_id in self._maximal_isr
                or (
                    follower.caught_up(end_offset, now_ms, self._lag_time_max_ms) and self._is_alive(follower.broker_id)
                )
            ):
                new = position
        if new <= offsets.high_watermark:
            return False
        offsets.high_watermark = new
        return True
