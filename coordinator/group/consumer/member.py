"""One member of a consumer group: its records in the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gregor.coordinator.group.consumer.reconciliation import MemberAssignment, MemberState, PartitionEpochs
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import ConsumerGroupCurrentMemberAssignmentValue, ConsumerGroupMemberMetadataValue

CONSUMER_MEMBER_TYPE = 1
CLASSIC_MEMBER_TYPE = 0
"""The member types of ConsumerGroupDescribe v1."""

ClassicMemberMetadata = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata
_TopicPartitions = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions

JOINING_EPOCH = 0
"""The member epoch of a heartbeat that joins or rejoins."""
LEFT_EPOCH = -1
"""The member epoch of a member that left, and of the heartbeat with which it leaves."""
AWAY_EPOCH = -2
"""The same of a static member that may return within its session."""

JOINING = MemberAssignment(previous_epoch=LEFT_EPOCH)
LEFT = MemberAssignment(epoch=LEFT_EPOCH, previous_epoch=LEFT_EPOCH)


class Subscription(NamedTuple):
    """The description of a member that it sent itself: the value of its record of key 5.

    `regex` is empty where the member subscribes to names alone. `classic` is set for a member that uses the classic
    protocol in a consumer group, and has its session timeout and its protocols.
    """

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None

    @classmethod
    def from_record(cls, value: ConsumerGroupMemberMetadataValue) -> Subscription:
        """The subscription as the log has it."""
        return cls(
            value.instance_id,
            value.rack_id,
            value.client_id,
            value.client_host,
            frozenset(value.subscribed_topic_names),
            value.subscribed_topic_regex or "",
            value.rebalance_timeout_ms,
            value.server_assignor,
            value.classic_member_metadata,
        )

    def to_record(self) -> ConsumerGroupMemberMetadataValue:
        """The value for the log; names are sorted as Kafka writes them."""
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topics),
            subscribed_topic_regex=self.regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=self.classic,
        )


def assignment_from_record(value: ConsumerGroupCurrentMemberAssignmentValue) -> MemberAssignment:
    """The assignment as the log has it. Versions before 4.3 wrote no epochs of partitions: the member epoch counts."""
    epoch = value.member_epoch
    try:
        state = MemberState(value.state)
    except ValueError:
        state = MemberState.UNKNOWN
    return MemberAssignment(
        state,
        epoch,
        value.previous_member_epoch,
        _epochs_from_record(value.assigned_partitions, epoch),
        _epochs_from_record(value.partitions_pending_revocation, epoch),
    )


def assignment_to_record(assignment: MemberAssignment) -> ConsumerGroupCurrentMemberAssignmentValue:
    """The value for the log."""
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=assignment.epoch,
        previous_member_epoch=assignment.previous_epoch,
        state=int(assignment.state),
        assigned_partitions=_epochs_to_record(assignment.assigned),
        partitions_pending_revocation=_epochs_to_record(assignment.pending_revocation),
    )


def _epochs_from_record(topics: Iterable[_TopicPartitions], epoch: int) -> PartitionEpochs:
    found: dict[Uuid, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(epoch, 0)] * len(topic.partitions)
        if topic.partitions:
            found.setdefault(topic.topic_id, {}).update(zip(topic.partitions, epochs, strict=True))
    return found


def _epochs_to_record(partitions: PartitionEpochs) -> list[_TopicPartitions]:
    return [
        _TopicPartitions(topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values()))
        for topic_id, epochs in partitions.items()
    ]


class ConsumerMember:
    """A member as the log has it: `subscription` by its record of key 5, `assignment` by that of key 8.

    Both values are immutable; a replay replaces them. The target assignment of a member belongs to its group.
    """

    __slots__ = ("assignment", "member_id", "rebalance_key", "session_key", "subscription")

    def __init__(self, group_id: str, member_id: str, subscription: Subscription, assignment: MemberAssignment) -> None:
        self.member_id = member_id
        self.subscription = subscription
        self.assignment = assignment
        # Kept because every heartbeat needs them.
        self.session_key = session_key(group_id, member_id)
        self.rebalance_key = rebalance_key(group_id, member_id)

    def subscribe(self, subscription: Subscription) -> None:
        """Apply the replay of a record of key 5."""
        self.subscription = subscription

    def assign(self, assignment: MemberAssignment) -> None:
        """Apply the replay of a record of key 8."""
        self.assignment = assignment

    @property
    def epoch(self) -> int:
        """The member epoch; -2 while a static member is away."""
        return self.assignment.epoch

    @property
    def instance_id(self) -> str | None:
        """The group.instance.id of a static member."""
        return self.subscription.instance_id

    @property
    def uses_classic_protocol(self) -> bool:
        """Whether the member sends JoinGroup, SyncGroup and Heartbeat instead of ConsumerGroupHeartbeat."""
        return self.subscription.classic is not None


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """The key of the timer that ends a member's session."""
    return ("consumer-session", group_id, member_id)


def rebalance_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """The key of the timer that ends the time in which a member must revoke partitions."""
    return ("consumer-rebalance", group_id, member_id)
