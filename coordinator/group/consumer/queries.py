"""ConsumerGroupDescribe (v0 to v1), and whether a member may commit or fetch offsets.

v1 adds the protocol of each member (KIP-1099).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gregor.coordinator.group.consumer.group import ConsumerGroup
from gregor.coordinator.group.consumer.member import CLASSIC_MEMBER_TYPE, CONSUMER_MEMBER_TYPE, ConsumerMember
from gregor.coordinator.group.consumer.reconciliation import MemberAssignment
from gregor.coordinator.ports import TopicView
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import ConsumerGroupDescribeResponse, OffsetCommitRequest, TxnOffsetCommitRequest

FIRST_COMMIT_WITH_EPOCH = 9
"""The version of OffsetCommit from which on members of the consumer protocol can use it."""

_Group = ConsumerGroupDescribeResponse.DescribedGroup
_Member = ConsumerGroupDescribeResponse.Member
_Assignment = ConsumerGroupDescribeResponse.Assignment
_TopicPartitions = ConsumerGroupDescribeResponse.TopicPartitions


def described(group: ConsumerGroup, topics: TopicView, assignor: str) -> _Group:
    """Describe one group; topics that no longer exist are left out."""
    return _Group(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=assignor,
        members=[_described_member(group, member, topics) for member in group.members.values()],
    )


def _described_member(group: ConsumerGroup, member: ConsumerMember, topics: TopicView) -> _Member:
    subscription = member.subscription
    owned: dict[Uuid, set[int]] = {}
    for partitions in (member.assignment.assigned, member.assignment.pending_revocation):
        for topic_id, indexes in partitions.items():
            owned.setdefault(topic_id, set()).update(indexes)
    return _Member(
        member_id=member.member_id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=member.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=sorted(subscription.topics),
        subscribed_topic_regex=subscription.regex,
        assignment=_described_assignment(owned, topics),
        target_assignment=_described_assignment(group.target_of(member.member_id), topics),
        member_type=CLASSIC_MEMBER_TYPE if member.uses_classic_protocol else CONSUMER_MEMBER_TYPE,
    )


def _described_assignment(partitions: Mapping[Uuid, Iterable[int]], topics: TopicView) -> _Assignment:
    named = [(topic_id, topics.name_of(topic_id), indexes) for topic_id, indexes in partitions.items()]
    return _Assignment(
        topic_partitions=[
            _TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
            for topic_id, name, indexes in named
            if name is not None
        ]
    )


def not_found(group_id: str, *, exists: bool) -> _Group:
    """The description of a group that does not exist, or is of another type."""
    message = f"Group {group_id} is not a consumer group." if exists else f"Group {group_id} not found."
    return _Group(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message)


# --- offsets


def commit_error(
    group: ConsumerGroup,
    topics: TopicView,
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
    epoch: int,
    version: int | None,
) -> ErrorCode:
    """Return why the group does not accept a commit of this sender; NONE if it does.

    `version` is that of OffsetCommit; None for a transactional commit. In an older member epoch than the present one a
    member may commit offsets of partitions that it already owned in that epoch (KIP-1251); one other partition refuses
    all. Kafka: ConsumerGroup.validateOffsetCommit.
    """
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    if version is None and epoch == -1 and request.member_id == "" and request.group_instance_id is None:
        return ErrorCode.NONE
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if version is not None and version < FIRST_COMMIT_WITH_EPOCH and not member.uses_classic_protocol:
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.epoch or (epoch < member.epoch and _owned_since(member.assignment, topics, request, epoch)):
        return ErrorCode.NONE
    return _stale(member)


def _owned_since(
    assignment: MemberAssignment,
    topics: TopicView,
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
    epoch: int,
) -> bool:
    """Whether the member owned all partitions of the request in this member epoch, and still owns them."""
    for topic in request.topics:
        found = topics.find(topic.name)
        if found is None:
            return False
        assigned = assignment.assigned.get(found.topic_id, _NO_EPOCHS)
        revoked = assignment.pending_revocation.get(found.topic_id, _NO_EPOCHS)
        for partition in topic.partitions:
            index = partition.partition_index
            since = assigned.get(index)
            if since is None:
                since = revoked.get(index)
            if since is None or epoch < since:
                return False
    return True


def fetch_error(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Return why the group does not show its offsets to this sender; NONE if it does. Kafka: validateOffsetFetch."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = None if member_id is None else group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.epoch else _stale(member)


def _stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH


_NO_EPOCHS: Mapping[int, int] = {}
