"""The records that change a consumer group. Kafka: GroupCoordinatorRecordHelpers."""

from __future__ import annotations

from collections.abc import Iterable

from gregor.coordinator.group.consumer.assignors.assignor import Assignment
from gregor.coordinator.group.consumer.group import ConsumerGroup, ResolvedExpression
from gregor.coordinator.group.consumer.member import Subscription, assignment_to_record
from gregor.coordinator.group.consumer.reconciliation import MemberAssignment
from gregor.coordinator.result import Record
from gregor.protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

_TopicPartition = ConsumerGroupTargetAssignmentMemberValue.TopicPartition


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> Record:
    """A new group epoch, and the hash of the subscribed topics."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return Record(ConsumerGroupMetadataKey(group_id=group_id), value)


def subscription(group_id: str, member_id: str, present: Subscription) -> Record:
    """A member that is new or changed its subscription."""
    return Record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), present.to_record())


def target_epoch(group_id: str, epoch: int, timestamp_ms: int) -> Record:
    """The target assignments of all members are those for this group epoch."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return Record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target(group_id: str, member_id: str, assignment: Assignment) -> Record:
    """The target assignment of one member."""
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            _TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assignment.items()
        ]
    )
    return Record(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def assignment(group_id: str, member_id: str, present: MemberAssignment) -> Record:
    """The partitions that one member owns, and its epoch."""
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return Record(key, assignment_to_record(present))


def expression(group_id: str, regex: str, resolved: ResolvedExpression | None) -> Record:
    """The topics that a regular expression matches; None removes it."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    if resolved is None:
        return Record(key, None)
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return Record(key, value)


def no_partition_metadata(group_id: str) -> Record:
    """Remove the record of key 4, which versions before 4.1 wrote."""
    return Record(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """Records that remove a member; Apache Kafka refuses to load another order."""
    return [
        Record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        Record(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        Record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group: ConsumerGroup) -> list[Record]:
    """Records that remove a group with all its members. Kafka: ConsumerGroup.createGroupTombstoneRecords."""
    return _tombstones(group, {**group.members, **group.target})


def _tombstones(group: ConsumerGroup, member_ids: Iterable[str]) -> list[Record]:
    group_id = group.group_id
    by_member = [member_tombstones(group_id, member_id) for member_id in member_ids]
    return [
        *(records[0] for records in by_member),
        *(records[1] for records in by_member),
        Record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(records[2] for records in by_member),
        *(expression(group_id, regex, None) for regex in group.resolved),
        no_partition_metadata(group_id),
        Record(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]
