"""The hard state of a consumer group: the last records of the log about it, and what can be derived from them.

Only replay changes it. Every order of records is accepted: a compacted log, or one that another program wrote, may
name a member first by its assignment, or one partition in the assignments of two members; then the later record counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from gregor.coordinator.group.consumer.assignors.assignor import NO_PARTITIONS, Assignment
from gregor.coordinator.group.consumer.member import (
    JOINING,
    LEFT,
    ConsumerMember,
    Subscription,
    assignment_from_record,
)
from gregor.coordinator.group.consumer.reconciliation import MemberAssignment, MemberState, PartitionEpochs
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)

INITIAL_EPOCH = 1
"""The group and the target epoch before any record: a member that joins while the first target assignment is delayed
needs an epoch above 0 (KIP-1263)."""
REFRESH_INTERVAL_MS = 10 * 60 * 1000
"""The subscribed topics are compared with those of the cluster at least so often, in case a notification is lost. (In
Apache Kafka 4.3 METADATA_REFRESH_INTERVAL_MS is 24 days.)"""


class ConsumerGroupState(StrEnum):
    """Names as ConsumerGroupDescribe and ListGroups spell them."""

    EMPTY = "Empty"
    """No members; the group lives on for its committed offsets."""
    ASSIGNING = "Assigning"
    """The target assignment is older than the group epoch."""
    RECONCILING = "Reconciling"
    """A member has not reached its target assignment."""
    STABLE = "Stable"
    """Every member has its target assignment."""
    DEAD = "Dead"
    """No such group."""


class ResolvedExpression(NamedTuple):
    """The topics that a regular expression matched at `timestamp_ms`. `version` grows with each resolution."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


NEVER_RESOLVED = ResolvedExpression(frozenset(), -1, -1)


def is_reconciled(assignment: MemberAssignment, target_epoch: int) -> bool:
    """Whether a member has all of its target assignment, and nothing else."""
    return assignment.epoch == target_epoch and assignment.state is MemberState.STABLE


class ConsumerGroup:
    """Hard state of one group, but for its offsets. `refresh_at_ms` and `expressions_due_ms` are soft state.

    Invariants: `static_members` maps instance ids to ids in `members`; `owners` has, by topic id and partition, the
    member whose assignment names the partition as assigned or as pending revocation.
    """

    __slots__ = (
        "_name_counts",
        "_state",
        "epoch",
        "expressions_due_ms",
        "group_id",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "owners",
        "refresh_at_ms",
        "regex_counts",
        "resolved",
        "static_members",
        "target",
        "target_epoch",
        "target_timestamp_ms",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.target_epoch = INITIAL_EPOCH
        # When the target assignment was computed; 0 where the log does not have it.
        self.target_timestamp_ms = 0
        self.target: dict[str, Assignment] = {}
        self.owners: dict[Uuid, dict[int, str]] = {}
        self.resolved: dict[str, ResolvedExpression] = {}
        # How many members subscribe to a regular expression.
        self.regex_counts: dict[str, int] = {}
        # The record of key 4, which versions before 4.1 wrote, is in the log and must be removed.
        self.has_partition_metadata = False
        self._name_counts: dict[str, int] = {}
        self._state: ConsumerGroupState | None = ConsumerGroupState.EMPTY
        # When the subscribed topics are compared with those of the cluster again, and the regular expressions.
        self.refresh_at_ms = 0
        self.expressions_due_ms = 0

    # --- read

    @property
    def state(self) -> ConsumerGroupState:
        """The state, which follows from epochs and assignments. Kafka: ConsumerGroup.maybeUpdateGroupState."""
        state = self._state
        if state is None:
            state = self._state = self._find_state()
        return state

    def _find_state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(is_reconciled(member.assignment, self.target_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member with this instance id."""
        if instance_id is None:
            return None
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member_id: str) -> Assignment:
        """The target assignment of a member; empty if it has none."""
        return self.target.get(member_id, NO_PARTITIONS)

    def is_free(self, topic_id: Uuid, partition: int) -> bool:
        """Whether no member owns a partition."""
        return partition not in self.owners.get(topic_id, _NOTHING)

    def topics_of(self, subscription: Subscription) -> frozenset[str]:
        """The topics that a subscription names, or that its regular expression matched."""
        resolved = self.resolved.get(subscription.regex) if subscription.regex else None
        if resolved is None:
            return subscription.topics
        return subscription.topics | resolved.topics if subscription.topics else resolved.topics

    @property
    def subscribed_topics(self) -> set[str]:
        """The topics of all members."""
        return self.subscribed_topics_with((), ())

    def subscribes_to_any(self, topics: frozenset[str]) -> bool:
        """Whether a member subscribes to one of the topics."""
        return not topics.isdisjoint(self._name_counts) or any(
            not topics.isdisjoint(found.topics) for found in self.resolved.values()
        )

    def subscribed_topics_with(
        self,
        removed: Iterable[Subscription],
        added: Iterable[Subscription],
        resolved: Mapping[str, ResolvedExpression] | None = None,
    ) -> set[str]:
        """The topics of all members after a change of members, and of what their expressions match."""
        counts = self._name_counts
        if removed or added:
            counts = dict(counts)
            for subscription in removed:
                _count(counts, subscription.topics, -1)
            for subscription in added:
                _count(counts, subscription.topics, 1)
        topics = set(counts)
        matched = self.resolved if resolved is None else resolved
        if matched:
            regexes = self.regexes_with(removed, added)
            for regex, found in matched.items():
                if regex in regexes:
                    topics |= found.topics
        return topics

    def regexes_with(self, removed: Iterable[Subscription], added: Iterable[Subscription]) -> dict[str, int]:
        """How many members subscribe to each regular expression after a change of members."""
        counts = dict(self.regex_counts)
        for subscription in removed:
            if subscription.regex:
                _count(counts, (subscription.regex,), -1)
        for subscription in added:
            if subscription.regex:
                _count(counts, (subscription.regex,), 1)
        return counts

    # --- soft state

    def refreshed(self, now_ms: int) -> None:
        """The topics of the subscriptions were compared with the metadata just now."""
        self.refresh_at_ms = now_ms + REFRESH_INTERVAL_MS

    def refresh_soon(self) -> None:
        """Compare the topics of the subscriptions with the metadata at the next heartbeat."""
        self.refresh_at_ms = 0

    def match_expressions_at(self, due_ms: int) -> None:
        """Match the regular expressions with the names of topics again at the first heartbeat from this time on."""
        self.expressions_due_ms = due_ms

    # --- replay

    def replay_epoch(self, value: ConsumerGroupMetadataValue) -> None:
        """Apply a record of key 3; its tombstone removes the group."""
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash
        self._state = None

    def replay_subscription(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        """Apply a record of key 5."""
        member = self.members.get(member_id)
        if value is None:
            if member is not None:
                self._remove(member)
            return
        if member is None:
            member = self._add(member_id)
        self._discount(member)
        subscription = Subscription.from_record(value)
        member.subscribe(subscription)
        _count(self._name_counts, subscription.topics, 1)
        if subscription.regex:
            _count(self.regex_counts, (subscription.regex,), 1)
        if subscription.instance_id is not None:
            self.static_members[subscription.instance_id] = member_id

    def replay_assignment(self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        """Apply a record of key 8. Without a value the member left; it exists until the tombstone of key 5."""
        member = self.members.get(member_id)
        if value is None:
            if member is not None:
                self._assign(member, LEFT)
            return
        if member is None:
            member = self._add(member_id)
        self._assign(member, assignment_from_record(value))

    def replay_target_epoch(self, value: ConsumerGroupTargetAssignmentMetadataValue | None) -> None:
        """Apply a record of key 6."""
        self.target_epoch = INITIAL_EPOCH if value is None else value.assignment_epoch
        self.target_timestamp_ms = 0 if value is None else value.assignment_timestamp
        self._state = None

    def replay_target(self, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        """Apply a record of key 7."""
        if value is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}

    def replay_expression(self, regex: str, value: ConsumerGroupRegularExpressionValue | None) -> None:
        """Apply a record of key 16."""
        if value is None:
            self.resolved.pop(regex, None)
        else:
            self.resolved[regex] = ResolvedExpression(frozenset(value.topics), value.version, value.timestamp)

    def replay_partition_metadata(self, *, present: bool) -> None:
        """Note that the log has, or no longer has, a value of key 4."""
        self.has_partition_metadata = present

    def _add(self, member_id: str) -> ConsumerMember:
        member = self.members[member_id] = ConsumerMember(self.group_id, member_id, Subscription(), JOINING)
        self._state = None
        return member

    def _remove(self, member: ConsumerMember) -> None:
        self._assign(member, LEFT)
        self._discount(member)
        del self.members[member.member_id]

    def _discount(self, member: ConsumerMember) -> None:
        """Forget the subscription of a member."""
        subscription = member.subscription
        _count(self._name_counts, subscription.topics, -1)
        if subscription.regex:
            _count(self.regex_counts, (subscription.regex,), -1)
        instance_id = subscription.instance_id
        # A replacement may have been replayed before.
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]

    def _assign(self, member: ConsumerMember, assignment: MemberAssignment) -> None:
        present = member.assignment
        self._disown(present.assigned, member.member_id)
        self._disown(present.pending_revocation, member.member_id)
        member.assign(assignment)
        self._own(assignment.assigned, member.member_id)
        self._own(assignment.pending_revocation, member.member_id)
        self._state = None

    def _own(self, partitions: PartitionEpochs, member_id: str) -> None:
        for topic_id, indexes in partitions.items():
            owners = self.owners.setdefault(topic_id, {})
            for index in indexes:
                owners[index] = member_id

    def _disown(self, partitions: PartitionEpochs, member_id: str) -> None:
        for topic_id, indexes in partitions.items():
            owners = self.owners.get(topic_id)
            if owners is None:
                continue
            for index in indexes:
                if owners.get(index) == member_id:
                    del owners[index]
            if not owners:
                del self.owners[topic_id]


_NOTHING: dict[int, str] = {}


def _count(counts: dict[str, int], names: Iterable[str], by: int) -> None:
    for name in names:
        count = counts.get(name, 0) + by
        if count > 0:
            counts[name] = count
        else:
            counts.pop(name, None)
