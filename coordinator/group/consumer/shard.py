"""The consumer groups of one shard: replay of their records, timers, and the operations on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from gregor.coordinator.group.consumer.config import ConsumerGroups
from gregor.coordinator.group.consumer.group import ConsumerGroup
from gregor.coordinator.group.consumer.heartbeat import Heartbeats
from gregor.coordinator.group.consumer.member import JOINING
from gregor.coordinator.group.consumer.metadata_hash import TopicHashes
from gregor.coordinator.group.consumer.queries import described, not_found
from gregor.coordinator.group.consumer.sessions import RETRY_MS, Conversions, Sessions
from gregor.coordinator.group.consumer.steady import SteadyHeartbeats
from gregor.coordinator.group.consumer.subscriptions import Expressions
from gregor.coordinator.group.consumer.targets import TargetAssignments
from gregor.coordinator.history.epochs import ConsumerEpochs
from gregor.coordinator.ports import ShardContext
from gregor.coordinator.result import Result
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupDescribeResponse,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from gregor.protocol.turns import Gate, Steps

CONSUMER_KEYS = (
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)
"""The keys of records of consumer groups, of the kinds 3 to 8 and 16."""


class GroupSlot(Protocol):
    """A group of either kind; `consumer` is its hard state as a consumer group."""

    consumer: ConsumerGroup | None


class ConsumerShard:
    """The consumer groups of one partition of `__consumer_offsets`."""

    def __init__(
        self,
        groups: Mapping[str, GroupSlot],
        consumer_groups: ConsumerGroups,
        context: ShardContext,
        gate: Gate,
        conversions: Conversions,
        new_member_id: Callable[[], str],
        history: ConsumerEpochs,
    ) -> None:
        """`groups` are those of both kinds."""
        self._history = history
        self._groups = groups
        self._topics = consumer_groups.topics
        self._hashes = TopicHashes(consumer_groups.topics)
        self._is_loaded = False
        self._are_served = consumer_groups.are_served
        self._conversions = conversions
        self._submit = context.submit
        self._timers = context.timers
        self.sessions = Sessions(consumer_groups.configs, self._hashes, self.find, context.timers, conversions, history)
        self.targets = TargetAssignments(consumer_groups, self.find, context, gate.run)
        self.expressions = Expressions(consumer_groups, self._hashes, self.find, context, gate.run)
        self.steady = SteadyHeartbeats(consumer_groups.configs, self.find, self.sessions, context.timers)
        self.heartbeats = Heartbeats(
            consumer_groups,
            self.find,
            conversions,
            self._hashes,
            self.sessions,
            self.targets,
            self.expressions,
            new_member_id,
        )

    def find(self, group_id: str) -> ConsumerGroup | None:
        """The consumer group with this id."""
        group = self._groups.get(group_id)
        return None if group is None else group.consumer

    # --- replay

    def replay(self, group: ConsumerGroup, key: Any, value: Any) -> bool:
        """Apply a record of one of CONSUMER_KEYS; return whether the group still exists."""
        kind = type(key)  # a group that assigns its partitions replays thousands
        if kind is ConsumerGroupCurrentMemberAssignmentKey:
            self._replay_assignment(group, key.member_id, value)
        elif kind is ConsumerGroupTargetAssignmentMemberKey:
            group.replay_target(key.member_id, value)
        elif kind is ConsumerGroupMemberMetadataKey:
            self._replay_subscription(group, key.member_id, value)
        elif kind is ConsumerGroupTargetAssignmentMetadataKey:
            group.replay_target_epoch(value)
            if self._is_loaded:
                self._history.on_target(group)
        elif kind is ConsumerGroupRegularExpressionKey:
            group.replay_expression(key.regular_expression, value)
        elif kind is ConsumerGroupPartitionMetadataKey:
            group.replay_partition_metadata(present=value is not None)
        elif value is not None:
            self._replay_epoch(group, value)
        else:
            self.forget(group)
            return False
        return True

    def _replay_subscription(self, group: ConsumerGroup, member_id: str, value: Any) -> None:
        present = group.members.get(member_id)
        before = None if present is None else present.subscription
        group.replay_subscription(member_id, value)
        if not self._is_loaded:
            return
        after = None if value is None else group.members[member_id].subscription
        self._history.on_subscription(group.group_id, member_id, before, after)
        if value is None:
            if present is not None:
                self.sessions.forget(present)
        else:
            self.sessions.watch(group, group.members[member_id])

    def _replay_assignment(self, group: ConsumerGroup, member_id: str, value: Any) -> None:
        present = group.members.get(member_id)
        before = JOINING if present is None else present.assignment
        group.replay_assignment(member_id, value)
        member = group.members.get(member_id)
        if self._is_loaded and member is not None:
            self.sessions.watch_revocation(group, member)
            self._history.on_assignment(group, member, before)

    def _replay_epoch(self, group: ConsumerGroup, value: ConsumerGroupMetadataValue) -> None:
        group.replay_epoch(value)
        if self._is_loaded:
            self._history.on_epoch(group)

    def begin_conversion(self, group_id: str, *, with_members: bool) -> None:
        """The records of a consumer group follow, which was a classic one."""
        if self._is_loaded:
            self._history.convert(group_id, with_members=with_members)

    def forget(self, group: ConsumerGroup) -> None:
        """The group is no longer a consumer group."""
        self.expressions.forget(group.group_id)
        self._history.forget(group.group_id)
        for member in group.members.values():
            self.sessions.forget(member)

    # --- life of the shard

    def on_loaded(self) -> Steps[None]:
        """All records have been replayed: sessions start anew."""
        self._is_loaded = True
        for slot in self._groups.values():
            group = slot.consumer
            if group is None:
                continue
            for member in group.members.values():
                self.sessions.watch(group, member)
                self.sessions.watch_revocation(group, member)
                yield None

        if not self._are_served():
            for group_id in self.group_ids():
                self._submit(partial(self.end, group_id))

    def group_ids(self) -> list[str]:
        """The ids of the consumer groups."""
        return [group_id for group_id, slot in self._groups.items() if slot.consumer is not None]

    def end(self, group_id: str, now_ms: int) -> Result:
        """Make a classic group of a consumer group, now that none is served; again until that is written."""
        group = self.find(group_id)
        if group is None or self._are_served():
            return Result(True)
        again = partial(self.end, group_id)

        def on_failure(_error: ErrorCode) -> None:
            self._timers.schedule(("consumer-end", group_id), RETRY_MS, again)

        # Where a crash leaves a part of the records the rest follows after the load.
        return Result(True, self._conversions.end(group, now_ms), on_failure=on_failure, atomic=False)

    def on_unloaded(self, error: ErrorCode) -> None:
        """Answer the heartbeats that wait; the timers end with the shard."""
        self.targets.forget_all()
        self._history.on_unloaded()
        self.heartbeats.fail_parked(error)

    def on_topics_changed(self, names: frozenset[str] | None, *, are_new: bool) -> None:
        """Topics changed; None: perhaps all. Their groups compare them at the next heartbeat."""
        self._hashes.forget(names)
        if are_new:
            self.expressions.on_new_topics()
        for slot in self._groups.values():
            group = slot.consumer
            if group is None:
                continue
            if are_new:
                group.match_expressions_at(0)
            if names is None or group.subscribes_to_any(names):
                group.refresh_soon()

    # --- queries

    def describe(self, group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
        """Describe a group; one that does not exist or is classic has an error."""
        group = self.find(group_id)
        if group is None:
            return not_found(group_id, exists=group_id in self._groups)
        subscriptions = (member.subscription for member in group.members.values())
        return described(group, self._topics, self.targets.preferred_assignor(subscriptions))
