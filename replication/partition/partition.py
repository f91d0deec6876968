"""One partition replica on this broker: its role, its appends and reads, and how far its records are committed.

Decisions without IO: the log holds the bytes, InSyncReplicas the leader's view of the followers, Leadership what is
committed, with the rules of the high watermark (HW).

Not thread-safe: everything runs on the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import ZERO_UUID, Uuid
from gregor.protocol.records.batch import (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    PRODUCER_FIELDS,
    PRODUCER_ID_AT,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_BIT,
    Buffer,
)
from gregor.replication.partition.in_sync_replicas import InSyncReplicas
from gregor.replication.partition.leadership import Leadership
from gregor.replication.partition.purgatory import DelayedOperations
from gregor.replication.traffic import TopicTraffic
from gregor.storage.producers import transaction_checks

if TYPE_CHECKING:
    from gregor.protocol.messages import LeaderAndIsrRequest
    from gregor.protocol.records.control import EndTransaction
    from gregor.storage.log.log import AppendInfo, Log, LogSlice
    from gregor.storage.producers.verification import OptionalGuard

NO_LEADER = -1
NO_EPOCH = -1
DEFAULT_LAG_TIME_MAX_MS = 30_000
_TRANSACTIONAL_OR_CONTROL = TRANSACTIONAL_BIT | CONTROL_BIT


class Partition:
    """State and rules of one replica."""

    __slots__ = (
        "_sole_leader",
        "controller_epoch",
        "delayed",
        "in_sync",
        "leader_epoch",
        "leader_id",
        "leadership",
        "local_id",
        "log",
        "partition",
        "partition_epoch",
        "replicas",
        "replication_factor",
        "topic",
        "topic_id",
        "traffic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        topic_id: Uuid,
        local_id: int,
        *,
        lag_time_max_ms: int = DEFAULT_LAG_TIME_MAX_MS,
        is_alive: Callable[[int], bool] = lambda _broker_id: True,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.local_id = local_id
        self.log: Log | None = None
        self.traffic = traffic or TopicTraffic()
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.controller_epoch = -1
        self.replicas: list[int] = []
        self.replication_factor = 0
        """The number of replicas without those that a reassignment is adding."""
        self.in_sync = InSyncReplicas(local_id, lag_time_max_ms, is_alive)
        self._sole_leader = False
        """Leader of a partition with no other replica: the HW is always the log end offset."""
        self.delayed = DelayedOperations(topic, partition)
        """Its watchers are called after each append, advance of the HW or the low watermark, and change of
        leadership."""
        self.leadership = Leadership(self.in_sync, self.delayed)

    def use_log(self, log: Log) -> None:
        """Serve from this log from now on.

        Its HW comes from a checkpoint; recovery may have truncated the log below it, retention advanced the start.
        """
        log.offsets.restore_high_watermark(log.high_watermark)
        self.log = log
        self.leadership.replace_log(log)

    def accept_topic_id(self, topic_id: Uuid) -> bool:
        """Adopt the id of a topic that an old release created without one. True if it is new here."""
        if self.topic_id != ZERO_UUID or topic_id == ZERO_UUID:
            return False
        self.topic_id = topic_id
        return True

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.partition} leader={self.leader_id} epoch={self.leader_epoch}>"

    # -- positions ---------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """Consumers see offsets below it. -1 without a log."""
        return -1 if self.log is None else self.log.offsets.high_watermark

    @property
    def log_end_offset(self) -> int:
        return -1 if self.log is None else self.log.offsets.log_end_offset

    @property
    def log_start_offset(self) -> int:
        return -1 if self.log is None else self.log.offsets.log_start_offset

    @property
    def last_stable_offset(self) -> int:
        """Consumers with isolation.level=read_committed see offsets below it. -1 without a log."""
        return -1 if self.log is None else self.log.last_stable_offset

    @property
    def is_leader(self) -> bool:
        """This broker leads the partition, with a log."""
        return self.leadership.log is not None

    @property
    def commits_at_once(self) -> bool:
        """Leader without followers: records are committed once `append` returns. Changes only with the leadership."""
        return self._sole_leader

    @property
    def isr(self) -> list[int]:
        """The committed in-sync set, known to the leader only: empty on followers."""
        return self.in_sync.isr

    # -- writing -----------------------------------------------------------------------------------------------

    def append(self, records: Buffer, now_ms: int, required_acks: int, *, from_client: bool = True) -> AppendInfo:
        """Append one batch as the leader.

        With a single replica the records are committed when this returns. Otherwise, for acks=all, pass
        `info.last_offset + 1` to `when_committed`. Delayed operations that are due run before this returns.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER; NOT_ENOUGH_REPLICAS (acks=all and too few in sync, nothing
        written); and the errors of the log.
        """
        # Hot path: one flag decides; nothing is allocated but what the log returns. The flag implies a log, which an
        # assertion for mypy would check again for each append; and the high watermark is set without another frame.
        if self._sole_leader:
            log = self.log
            info = log.append_as_leader(records, self.leader_epoch, now_ms, from_client=from_client)  # type: ignore[union-attr]
            offsets = log.offsets  # type: ignore[union-attr]
            offsets.high_watermark = offsets.log_end_offset
            if not offsets.is_moved:
                offsets.note_move()
            traffic = self.traffic
            traffic.produce_requests += 1
            traffic.messages_in += info.last_offset - info.first_offset + 1
            traffic.bytes_in += len(records)
            if self.delayed.active:
                self.delayed.run(self.leadership.verdict)
            return info
        return self._append_replicated(records, now_ms, required_acks, from_client)

    def append_marker(self, marker: EndTransaction, now_ms: int) -> AppendInfo:
        """Append a marker as `append` does, with acks=all. Raises also as transaction_checks.check_marker."""
        transaction_checks.check_marker(self.leadership.leader_log().producers.entries.get(marker.producer_id), marker)
        return self.append(marker.batch(now_ms), now_ms, -1, from_client=False)

    def begin_verification(self, producer_id: int, epoch: int, sequence: int, new_protocol: bool) -> OptionalGuard:
        """Do as ProducerStates.begin_verification. Raises KafkaError also as `leader_log`."""
        return self.leadership.leader_log().producers.begin_verification(producer_id, epoch, sequence, new_protocol)

    def append_verified(
        self, records: Buffer, now_ms: int, required_acks: int, guard: OptionalGuard, *, from_client: bool = True
    ) -> AppendInfo:
        """Append a batch as `append` does; if it is transactional, only to an open transaction or to the one that was
        verified. Raises KafkaError as `append` and transaction_checks.check_verified."""
        # `append` refuses what is no batch, and the control batch of a client, whatever its sequence.
        if (
            len(records) >= RECORD_BATCH_OVERHEAD
            and records[ATTRIBUTES_AT + 1] & _TRANSACTIONAL_OR_CONTROL == TRANSACTIONAL_BIT
        ):
            fields = PRODUCER_FIELDS.unpack_from(records, PRODUCER_ID_AT)
            producers = self.leadership.leader_log().producers
            transaction_checks.check_verified(producers.entries.get(fields[0]), producers.verifications, fields, guard)
        return self.append(records, now_ms, required_acks, from_client=from_client)

    def _append_replicated(self, records: Buffer, now_ms: int, required_acks: int, from_client: bool) -> AppendInfo:
        log, in_sync = self.leadership.leader_log(), self.in_sync
        count = len(in_sync.isr)
        if (
            required_acks == -1
            and count < log.config.min_insync_replicas
            and count < (required := in_sync.effective_min_isr(log))
        ):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS, f"{self.topic}-{self.partition}: {count} in sync, {required} required"
            )
        info = log.append_as_leader(records, self.leader_epoch, now_ms, from_client=from_client)
        self.traffic.appended(info.last_offset - info.first_offset + 1, len(records))
        if len(in_sync.maximal_isr) > 1:
            # The records are not committed before the others have fetched them.
            if self.delayed.active:
                self.delayed.notify_watchers(self.leadership.verdict)
        elif in_sync.advance_high_watermark(log, now_ms) or self.delayed.active:
            self.delayed.run(self.leadership.verdict)
        return info

    # -- reading -----------------------------------------------------------------------------------------------

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Compare the leader epoch that a client or follower sent, -1 for none, with ours.

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
        read_committed: bool = False,
    ) -> LogSlice:
        """Read records from `offset` on: for consumers (replica_id < 0) below the HW, or with `read_committed` below
        the last stable offset, for followers to the log's end.

        Without `leader_only` a follower serves consumers, too, up to the HW that it knows (KIP-392). Raises
        KafkaError: epoch errors of `check_epoch`, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE. Without
        `waits_for_disk` also NotCached.
        """
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            self.check_epoch(current_leader_epoch)
        log = self.log
        if log is None or (leader_only and self.leadership.log is None):
            raise KafkaError(self.leadership.error)
        if read_committed:
            upper_offset = self.last_stable_offset
        else:
            upper_offset = log.offsets.high_watermark if replica_id < 0 else log.offsets.log_end_offset
        return log.read(offset, max_bytes, upper_offset, min_one_batch, waits_for_disk)

    # -- leadership --------------------------------------------------------------------------------------------

    def become_leader(self, state: LeaderAndIsrRequest.LeaderAndIsrPartitionState, now_ms: int) -> bool:
        """Lead the partition as the controller's `state` describes it. True if this broker did not lead it just before.

        The partition has a log. A state with an older partition epoch than ours is ignored: our own ISR change
        overtook it.
        """
        if state.partition_epoch < self.partition_epoch:
            return False
        log = self.log
        assert log is not None
        # In a leader epoch that this broker has not received another one may have led, and the followers may have
        # truncated their logs to that one's: what is known of them holds no more. (Apache Kafka keeps it.)
        newly_leader = not self.is_leader or state.leader_epoch > self.leader_epoch + 1
        # Also where this broker led in this epoch before its log was offline for a time.
        begins = newly_leader or state.leader_epoch > self.leader_epoch
        self._set_assignment(state)
        self.in_sync.assign(state.replicas, state.isr)
        if begins:
            start_offset = log.log_end_offset
            latest = log.latest_epoch()
            # Followers truncate by the epochs of this log: the epoch must be in it before its first record is.
            if latest is None or latest < state.leader_epoch:
                log.assign_epoch(state.leader_epoch, start_offset)
            self.in_sync.begin_epoch(start_offset, newly_leader, now_ms)
            self.leader_epoch = state.leader_epoch
        self.leader_id = self.local_id
        self._sole_leader = not self.in_sync.followers
        self.leadership.begin(log, now_ms)
        return newly_leader

    def become_follower(self, state: LeaderAndIsrRequest.LeaderAndIsrPartitionState) -> bool:
        """Follow `state.leader`, -1 for none. True if the leader epoch is new, so that fetching must restart.

        Delayed produce requests get NOT_LEADER_OR_FOLLOWER. The fetcher truncates the log.
        """
        if state.partition_epoch < self.partition_epoch:
            return False
        new_epoch = state.leader_epoch > self.leader_epoch
        self._set_assignment(state)
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self._sole_leader = False
        self.leadership.end()
        return new_epoch

    # -- following ---------------------------------------------------------------------------------------------

    def append_as_follower(
        self, records: Buffer, leader_high_watermark: int, leader_log_start_offset: int, now_ms: int
    ) -> None:
        """Append the leader's batches, and advance the HW and the log start offset to the leader's.

        Watchers are notified of a change of either. Raises KafkaError as the log does.
        """
        assert self.log is not None
        log, offsets = self.log, self.log.offsets
        if len(records):
            if offsets.log_start_offset == offsets.log_end_offset:
                log.begin_with(records, now_ms)
            log.append_as_follower(records, now_ms)
            self.traffic.replication_bytes_in += len(records)
        before = offsets.high_watermark, offsets.log_start_offset
        offsets.set_high_watermark(min(max(leader_high_watermark, offsets.log_start_offset), offsets.log_end_offset))
        start_offset = min(leader_log_start_offset, offsets.high_watermark)
        if start_offset > offsets.log_start_offset:
            log.retention.advance_log_start_offset(start_offset)
        if self.delayed.active and before != (offsets.high_watermark, offsets.log_start_offset):
            self.delayed.run(self.leadership.verdict)

    def offline(self, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Stop serving a replica that was deleted or reassigned, or whose disk failed. Delayed requests get `error`."""
        self.leader_id = NO_LEADER
        self.log = None
        self._sole_leader = False
        self.leadership.end(error)

    def _set_assignment(self, state: LeaderAndIsrRequest.LeaderAndIsrPartitionState) -> None:
        self.controller_epoch = state.controller_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = list(state.replicas)
        self.replication_factor = len(set(state.replicas).difference(state.adding_replicas))

    def isr_decided(self, isr: list[int], partition_epoch: int, now_ms: int) -> None:
        """Apply the ISR that the controller committed, unless a newer partition epoch overtook it."""
        if self.is_leader and partition_epoch > self.partition_epoch:
            self.partition_epoch = partition_epoch
            self.traffic.isr_changed(len(isr) - len(self.in_sync.isr))
            self.leadership.commit_isr(isr, now_ms)
