"""The groups of one partition of `__consumer_offsets`: a state machine that is fed with records.

`replay` is the only place where hard state changes, for live traffic, after a restart and after a change of leader
alike. Operations read hard and soft state and return a Result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gregor.coordinator.group.config import GroupConfig
from gregor.coordinator.group.consumer import changes
from gregor.coordinator.group.consumer.config import ConsumerGroups
from gregor.coordinator.group.consumer.group import ConsumerGroup
from gregor.coordinator.group.consumer.shard import ConsumerShard
from gregor.coordinator.group.group import CommittedOffset, Group
from gregor.coordinator.group.joining import Joiner, Joining
from gregor.coordinator.group.membership import Memberships
from gregor.coordinator.group.migration.classic_members import ClassicMembers
from gregor.coordinator.group.migration.conversions import Conversions
from gregor.coordinator.group.offsets import Offsets
from gregor.coordinator.group.queries import Queries
from gregor.coordinator.group.rebalance import Rebalances
from gregor.coordinator.group.soft_state import SoftState
from gregor.coordinator.group.states import ANSWERS, GroupState, Request
from gregor.coordinator.history.causes import Cause, Trigger
from gregor.coordinator.history.classic import ClassicRebalances
from gregor.coordinator.history.deletions import Deletions
from gregor.coordinator.history.epochs import ConsumerEpochs
from gregor.coordinator.history.rebalance import Assigned, NoHistory, RebalanceLog
from gregor.coordinator.ports import ShardContext
from gregor.coordinator.result import Producer, Record, Result
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import random_uuid, uuid_to_text
from gregor.protocol.messages import (
    DeleteGroupsResponse,
    GroupMetadataKey,
    GroupMetadataValue,
    HeartbeatRequest,
    LeaveGroupRequest,
    OffsetCommitKey,
    OffsetCommitRequest,
    OffsetCommitValue,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from gregor.protocol.turns import Gate, Steps

_log = logging.getLogger(__name__)

NO_PRODUCER_ID = -1
GROUPS_PER_CLEANUP_STEP = 500
"""An operation cannot be interrupted before its records are written; one for so many groups lasts a millisecond."""

_EXPIRY_KEY = ("expiry",)

_GroupPartition = tuple[str, str, int]
"""Group, topic and partition."""


class GroupShard:
    """Hard state (`groups`, `transactions`) and soft state (`soft`) of one partition, and the operations on them."""

    def __init__(
        self,
        config: GroupConfig,
        context: ShardContext,
        gate: Gate,
        consumer_groups: ConsumerGroups,
        new_uuid: Callable[[], str] | None = None,
        history: RebalanceLog | None = None,
    ) -> None:
        self._config = config
        self._timers = timers = context.timers
        self.groups: dict[str, Group] = {}
        # The pending offsets of each producer id, which are in Group.pending.
        self.transactions: dict[int, dict[_GroupPartition, None]] = {}
        self.soft = SoftState(self.groups, timers)
        log = history or NoHistory()
        self._history = ClassicRebalances(log)
        self._deletions = Deletions(log)
        self._rebalances = Rebalances(config, self.soft, self._history)
        self._joining = Joining(config, self.soft, self._rebalances, new_uuid)
        self._memberships = Memberships(self.soft, self._rebalances)
        conversions = Conversions(
            consumer_groups, config.max_size, self.groups, self.soft, self._rebalances, context.submit
        )
        new_member_id = new_uuid or (lambda: uuid_to_text(random_uuid()))
        self.consumers = ConsumerShard(
            self.groups, consumer_groups, context, gate, conversions, new_member_id, ConsumerEpochs(log)
        )
        self._classic_members = ClassicMembers(consumer_groups, self.consumers, conversions, new_member_id)
        self.offsets = Offsets(config, self.groups, self.soft, self._rebalances, consumer_groups.topics)
        self.queries = Queries(self.groups, self.soft)

    # --- hard state

    def replay(self, record: Record, offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply one record that is in the log at `offset`; `producer_id` if it belongs to a transaction."""
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            if value is None:
                self._replay_offset_tombstone(key)
            else:
                self._replay_offset(key, value, offset, producer_id)
        elif isinstance(key, GroupMetadataKey):
            self._replay_metadata(key.group, value)
        else:
            self._replay_consumer_group(key, value)

    def _replay_consumer_group(self, key: Any, value: Any) -> None:
        """A record of one kind ends a group of the other: the later one counts, in whatever order the log has them."""
        group_id = key.group_id
        group = self.groups.get(group_id)
        if value is None and (group is None or group.consumer is None):
            return
        group = self._group(group_id)
        if group.consumer is None:
            if group.become_consumer(ConsumerGroup(group_id)):
                _log.warning("Group %r: records of a consumer group follow those of a classic one", group_id)
            self.soft.close(group_id)
        assert group.consumer is not None
        if not self.consumers.replay(group.consumer, key, value):
            group.end_consumer()
            self._deletions.replayed(group_id)
            if not (group.offsets or group.pending):
                del self.groups[group_id]

    def _replay_metadata(self, group_id: str, value: GroupMetadataValue | None) -> None:
        group = self._group(group_id)
        if group.consumer is not None:
            if value is None:
                return
            if group.consumer.members:
                _log.warning("Group %r: a record of a classic group follows those of a consumer group", group_id)
            self.consumers.forget(group.consumer)
        before = group.replace_metadata(value)
        membership = self.soft.memberships.get(group_id)
        if value is None:
            self._history.ended(group_id)
            if not self._deletions.replayed(group_id) and before is not None:
                members = before.members if membership is None else membership.members
                self.consumers.begin_conversion(group_id, with_members=bool(members))
            # Only a group that becomes a consumer group has parked requests here: its members join again.
            self.soft.close(group_id, ErrorCode.REBALANCE_IN_PROGRESS)
            if not (group.offsets or group.pending):
                self.groups.pop(group_id, None)
        elif membership is not None:
            membership.adopt(value)
            assigned = [Assigned(one.group_instance_id or one.member_id, one.assignment) for one in value.members]
            self._history.written(group_id, value.generation, assigned)
            self.soft.tidy(group_id)

    def _replay_offset(self, key: OffsetCommitKey, value: OffsetCommitValue, offset: int, producer_id: int) -> None:
        committed = CommittedOffset(
            value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp, offset
        )
        group = self._group(key.group)
        if producer_id == NO_PRODUCER_ID:
            group.offsets.setdefault(key.topic, {})[key.partition] = committed
        else:
            group.pending.setdefault((key.topic, key.partition), {})[producer_id] = committed
            self.transactions.setdefault(producer_id, {})[key.group, key.topic, key.partition] = None

    def _replay_offset_tombstone(self, key: OffsetCommitKey) -> None:
        group = self.groups.get(key.group)
        if group is None:
            return
        for producer_id in group.pending.pop((key.topic, key.partition), ()):
            self._forget_pending(producer_id, (key.group, key.topic, key.partition))
        offsets = group.offsets.get(key.topic)
        if offsets is not None:
            offsets.pop(key.partition, None)
            if not offsets:
                del group.offsets[key.topic]
        # A simple group without offsets stays until the search for expired ones comes by, as in Apache Kafka 4.

    def _forget_pending(self, producer_id: int, partition: _GroupPartition) -> None:
        partitions = self.transactions[producer_id]
        del partitions[partition]
        if not partitions:
            del self.transactions[producer_id]

    def replay_end_of_transaction(self, producer_id: int, *, commit: bool) -> None:
        """A marker in the log: the pending offsets of the producer count now, or never."""
        for group_id, topic, partition in self.transactions.pop(producer_id, ()):
            group = self.groups[group_id]
            by_producer = group.pending[topic, partition]
            committed = by_producer.pop(producer_id)
            if not by_producer:
                del group.pending[topic, partition]
            if commit:
                offsets = group.offsets.setdefault(topic, {})
                present = offsets.get(partition)
                # A plain commit may have followed the transactional one; the order of their records decides.
                if present is None or present.record_offset < committed.record_offset:
                    offsets[partition] = committed

    def _group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id)
        return group

    # --- life of the shard

    def on_loaded(self, now_ms: int) -> Steps[None]:
        """Everything in the log has been replayed: sessions start anew, and the search for expired offsets begins.
        The shard serves no operation between two steps.
        """
        for group in self.groups.values():
            if group.metadata is None or not group.metadata.members:
                continue
            yield None
            self._history.restored(group.group_id)
            self._rebalances.restore(group.group_id)
            membership = self.soft.memberships[group.group_id]
            size = len(membership.members)
            if size > self._config.max_size:
                # Let members commit their offsets and rejoin; those for whom there is no room are turned away then.
                reason = f"{size} members are more than group.max.size"
                self._rebalances.begin(membership, [Cause(Trigger.GROUP_TOO_LARGE, detail=reason)], reason, now_ms)
        yield from self.consumers.on_loaded()
        self._schedule_cleanup()

    def on_unloaded(self, error: ErrorCode) -> None:
        """Drop the state; parked requests fail with the error. A connection that renewed a heartbeat may hold the shard
        until it ends."""
        self._timers.cancel(_EXPIRY_KEY)
        self.consumers.on_unloaded(error)
        self._history.on_unloaded()
        self.soft.close_all(error)
        self.groups.clear()
        self.transactions.clear()

    # --- operations

    def join(self, joiner: Joiner, now_ms: int) -> Result:
        """See Joining.join, and ClassicMembers.join for a consumer group; an empty one becomes a classic group."""
        group = self.consumers.find(joiner.request.group_id)
        if group is None:
            return self._joining.join(joiner, now_ms)
        if group.members:
            return self._classic_members.join(joiner, now_ms)
        result = self._joining.join_new_group(joiner, now_ms)
        return result.begin_with(changes.group_tombstones(group)) if result.records else result

    def sync(self, request: SyncGroupRequest, now_ms: int) -> Result:
        """See Memberships.sync, and ClassicMembers.sync for a consumer group."""
        group = self.consumers.find(request.group_id)
        if group is None:
            return self._memberships.sync(request, now_ms)
        return self._classic_members.sync(group, request)

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, group_instance_id: str | None, now_ms: int
    ) -> ErrorCode:
        """See Memberships.heartbeat, and ClassicMembers.heartbeat for a consumer group."""
        group = self.consumers.find(group_id)
        if group is None:
            return self._memberships.heartbeat(group_id, generation, member_id, group_instance_id)
        return self._classic_members.heartbeat(group, generation, member_id, group_instance_id, now_ms)

    def heartbeat_renewal(self, request: HeartbeatRequest) -> Callable[[], bool] | None:
        """See Memberships.renewal. A group that becomes a consumer group has no membership any more."""
        if self.consumers.find(request.group_id) is not None:
            return None
        return self._memberships.renewal(request)

    def leave(self, request: LeaveGroupRequest, now_ms: int) -> Result:
        """See Memberships.leave, and ClassicMembers.leave for a consumer group."""
        group = self.consumers.find(request.group_id)
        if group is None:
            return self._memberships.leave(request, now_ms)
        return self._classic_members.leave(group, request, now_ms)

    def commit_offsets(self, request: OffsetCommitRequest, version: int, now_ms: int) -> Result:
        """See Offsets.commit."""
        return self.offsets.commit(request, version, now_ms)

    def commit_transactional_offsets(
        self, request: TxnOffsetCommitRequest, version: int, producer: Producer, now_ms: int
    ) -> Result:
        """See Offsets.commit_in_transaction."""
        return self.offsets.commit_in_transaction(request, version, producer, now_ms)

    def delete_groups(self, group_ids: Iterable[str]) -> Result:
        """Answers with a list of DeletableGroupResult: a group goes with its offsets, if it has no members."""
        result = Result([], atomic=False, on_failure=self._deletions.failed)
        for group_id in group_ids:
            error = self._delete_error(group_id)
            if not error:
                result.records += self._tombstones(group_id)
            result.response.append(DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error))
        return result

    def _delete_error(self, group_id: str) -> ErrorCode:
        consumer = self.consumers.find(group_id)
        if consumer is not None:
            return ErrorCode.NON_EMPTY_GROUP if consumer.members else ErrorCode.NONE
        answer = ANSWERS[Request.DELETE][self.soft.state(group_id)]
        return answer if isinstance(answer, ErrorCode) else ErrorCode.NONE

    def delete_offsets_of_topics(self, topics: Iterable[str]) -> Result:
        """Topics were deleted: what groups committed for them would be wrong for new topics of the same name."""
        gone = frozenset(topics)
        # Only few of many groups have anything of them.
        groups = [group for group in self.groups.values() if group.pending or not gone.isdisjoint(group.offsets)]
        records = [record for group in groups for record in self.offsets.of_topics(group, gone)]
        return Result(records=records, atomic=False)

    def _tombstones(self, group_id: str) -> list[Record]:
        group = self.groups.get(group_id) or Group(group_id)
        return [*self.offsets.tombstones(group), *self._end_of(group)]

    def _end_of(self, group: Group) -> list[Record]:
        """Records that remove a group without members, but for its offsets."""
        if group.consumer is not None:
            self._deletions.expect(group.group_id, group.consumer.epoch)
            return changes.group_tombstones(group.consumer)
        if group.metadata is not None:
            self._deletions.expect(group.group_id, group.metadata.generation)
        return [Record(GroupMetadataKey(group=group.group_id), None)]

    # --- expiry

    def _schedule_cleanup(self) -> None:
        self._timers.schedule(_EXPIRY_KEY, self._config.retention_check_interval_ms, self._begin_cleanup)

    def _begin_cleanup(self, now_ms: int) -> Result:
        return self._cleanup_step(iter(list(self.groups)), now_ms)

    def _cleanup_step(self, group_ids: Iterator[str], now_ms: int) -> Result:
        """Clean up some groups, and the rest after other operations had their turn."""
        records: list[Record] = []
        for _ in range(GROUPS_PER_CLEANUP_STEP):
            group_id = next(group_ids, None)
            if group_id is None:
                self._schedule_cleanup()
                break
            records += self._cleanup(group_id, now_ms)
        else:
            self._timers.schedule(_EXPIRY_KEY, 0, lambda later_ms: self._cleanup_step(group_ids, later_ms))
        if records:
            _log.info("%d records remove expired offsets and groups", len(records))
        return Result(records=records, atomic=False, on_failure=self._deletions.failed)

    def _cleanup(self, group_id: str, now_ms: int) -> list[Record]:
        group = self.groups.get(group_id)
        if group is None:
            return []
        records, nothing_left = self.offsets.expired(group, now_ms)
        membership = self.soft.memberships.get(group_id)
        awaited = membership is not None and bool(membership.pending)
        occupied = group.consumer is not None and bool(group.consumer.members)
        if nothing_left and not awaited and not occupied and self.soft.state(group_id) is GroupState.EMPTY:
            records += self._end_of(group)
        return records
