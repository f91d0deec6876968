"""Conversion of groups between the classic and the consumer protocol, as records.

A classic group whose members are consumers becomes a consumer group when the first member of the consumer protocol
joins it. Its members remain what they are: each keeps its id, its generation as member epoch and its assignment, and
its protocols are in the record of its subscription. When the last member of the consumer protocol leaves, the group
becomes a classic one again: its generation is the group epoch, and its assignments are what members own. (Apache Kafka
writes their targets: a coordinator that loads such a group could assign partitions that others have not released.) The
records of a conversion are one batch; offsets stay as they are. Kafka: ConsumerGroup.fromClassicGroup,
ClassicGroup.fromConsumerGroup and ConsumerGroupMigrationPolicy (group.consumer.migration.policy).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from gregor.coordinator.group.consumer import changes
from gregor.coordinator.group.consumer.assignors.assignor import Assignment
from gregor.coordinator.group.consumer.group import ConsumerGroup
from gregor.coordinator.group.consumer.member import ClassicMemberMetadata, ConsumerMember, Subscription
from gregor.coordinator.group.consumer.reconciliation import MemberAssignment, MemberState
from gregor.coordinator.group.group import Membership
from gregor.coordinator.group.member import Member, protocols_by_name
from gregor.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from gregor.coordinator.ports import TopicView
from gregor.coordinator.result import Record
from gregor.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import (
    ConsumerGroupMemberMetadataValue,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    GroupMetadataKey,
)

_log = logging.getLogger(__name__)

UPGRADING_POLICIES = frozenset({"bidirectional", "upgrade"})
DOWNGRADING_POLICIES = frozenset({"bidirectional", "downgrade"})
DISABLED = "disabled"

_VERSION = struct.Struct(">h")
_ClassicProtocol = ConsumerGroupMemberMetadataValue.ClassicProtocol


class Conversion(NamedTuple):
    """A consumer group that the records make of a classic one; the group of the shard changes by their replay."""

    group: ConsumerGroup
    records: list[Record]


# --- the embedded data of consumers


def version_of(data: bytes) -> int:
    """The version before the data of a consumer. Raises MalformedMessage."""
    if len(data) < _VERSION.size:
        raise MalformedMessage(f"{len(data)} bytes are no data of a consumer")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise MalformedMessage(f"data of a consumer in version {version}")
    return int(version)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """The metadata of a protocol of a consumer. Raises MalformedMessage."""
    version = min(version_of(data), ConsumerProtocolSubscription.MAX_VERSION)
    return ConsumerProtocolSubscription.decode(data, version, _VERSION.size)[0]


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """The assignment of a consumer, as a leader sends it. Raises MalformedMessage."""
    version = min(version_of(data), ConsumerProtocolAssignment.MAX_VERSION)
    return ConsumerProtocolAssignment.decode(data, version, _VERSION.size)[0]


def encode_assignment(partitions: Mapping[Uuid, Iterable[int]], metadata: bytes, topics: TopicView) -> bytes:
    """The assignment as the member with this metadata expects it; topics that do not exist any more are left out."""
    version = min(version_of(metadata), ConsumerProtocolAssignment.MAX_VERSION)
    named = [(topics.name_of(topic_id), indexes) for topic_id, indexes in partitions.items()]
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=sorted(indexes))
            for name, indexes in named
            if name is not None
        ]
    )
    return _VERSION.pack(version) + message.encode(version)


def owned_partitions(subscription: ConsumerProtocolSubscription, topics: TopicView) -> dict[Uuid, frozenset[int]]:
    """The partitions that a joining member reports to own, as far as their topics exist."""
    return _by_topic_id(((one.topic, one.partitions) for one in subscription.owned_partitions), topics)


def _by_topic_id(partitions: Iterable[tuple[str, Iterable[int]]], topics: TopicView) -> dict[Uuid, frozenset[int]]:
    found = {}
    for name, indexes in partitions:
        topic = topics.find(name)
        if topic is not None and (numbers := frozenset(indexes)):
            found[topic.topic_id] = numbers
    return found


# --- classic to consumer


def upgrade_error(membership: Membership, policy: str, max_size: int) -> str | None:
    """Why a group with members may not become a consumer group; None if it may."""
    if policy not in UPGRADING_POLICIES:
        return "online upgrade is disabled"
    if membership.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return "the group does not use the consumer embedded protocol"
    if len(membership.members) > max_size:
        return "the group size exceeds the consumer group maximum size"
    return None


def upgrade(
    membership: Membership,
    policy: str,
    max_size: int,
    topics: TopicView,
    hash_of: Callable[[Collection[str]], int],
) -> Conversion:
    """Make a consumer group of a classic one that has members. `hash_of` is the metadata hash of topics.

    Raises KafkaError(GROUP_ID_NOT_FOUND): the group stays a classic one.
    """
    error = upgrade_error(membership, policy, max_size)
    if error is None:
        try:
            return _upgraded(membership, topics, hash_of)
        except MalformedMessage as malformed:
            _log.warning("Group %r: the data of a member cannot be decoded: %s", membership.group_id, malformed)
            error = "the embedded consumer protocol is malformed"
        except _CustomAssignor:
            error = (
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
                "assignor before re-attempting the upgrade"
            )
    _log.info("Group %r: it is not converted to a consumer group: %s", membership.group_id, error)
    raise KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {membership.group_id} to consumer group because {error}.",
    )


class _CustomAssignor(Exception):
    """An assignment has data that the assignors of the coordinator would lose."""


def _upgraded(membership: Membership, topics: TopicView, hash_of: Callable[[Collection[str]], int]) -> Conversion:
    group_id, epoch = membership.group_id, membership.generation
    subscriptions: dict[str, Subscription] = {}
    targets: dict[str, Assignment] = {}
    for member in membership.members.values():
        targets[member.member_id] = _assigned(member, topics)
        subscriptions[member.member_id] = _subscription(member, membership.protocol)
    names = frozenset[str]().union(*(one.topics for one in subscriptions.values()))
    members = [changes.subscription(group_id, member_id, one) for member_id, one in subscriptions.items()]
    group_epoch = changes.group_epoch(group_id, epoch, hash_of(names))
    target = [changes.target(group_id, member_id, one) for member_id, one in targets.items()]
    target_epoch = changes.target_epoch(group_id, epoch, 0)
    assignments = [
        changes.assignment(group_id, member_id, _reconciled(epoch, assignment))
        for member_id, assignment in targets.items()
    ]
    group = ConsumerGroup(group_id)
    for record in members:
        group.replay_subscription(record.key.member_id, record.value)
    group.replay_epoch(group_epoch.value)
    for record in target:
        group.replay_target(record.key.member_id, record.value)
    group.replay_target_epoch(target_epoch.value)
    for record in assignments:
        group.replay_assignment(record.key.member_id, record.value)
    gone = Record(GroupMetadataKey(group=group_id), None)
    return Conversion(group, [gone, *members, group_epoch, *target, target_epoch, *assignments])


def _assigned(member: Member, topics: TopicView) -> dict[Uuid, frozenset[int]]:
    """The last assignment of a classic member; empty if it has never had one."""
    if not member.assignment:
        return {}
    assignment = decode_assignment(member.assignment)
    if assignment.user_data:
        raise _CustomAssignor
    return _by_topic_id(((one.topic, one.partitions) for one in assignment.assigned_partitions), topics)


def _subscription(member: Member, protocol: str | None) -> Subscription:
    """The subscription of a classic member. One that no generation has seen yet counts by its first protocol."""
    metadata = member.protocols.get(protocol or "")
    if metadata is None:
        metadata = next(iter(member.protocols.values()))
    decoded = decode_subscription(metadata)
    return Subscription(
        instance_id=member.group_instance_id,
        rack_id=decoded.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(decoded.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=classic_metadata(member.session_timeout_ms, member.protocols),
    )


def classic_metadata(session_timeout_ms: int, protocols: Mapping[str, bytes]) -> ClassicMemberMetadata:
    """The part of a subscription that only members of the classic protocol have."""
    return ClassicMemberMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=[_ClassicProtocol(name=name, metadata=data) for name, data in protocols.items()],
    )


def _reconciled(epoch: int, assignment: Assignment) -> MemberAssignment:
    epochs = {topic_id: dict.fromkeys(sorted(indexes), epoch) for topic_id, indexes in assignment.items()}
    return MemberAssignment(MemberState.STABLE, epoch, epoch, epochs, {})


# --- consumer to classic


def only_classic_without(group: ConsumerGroup, leaving: Collection[str]) -> bool:
    """Whether some member stays without these, and every one that does uses the classic protocol."""
    staying = [member for member_id, member in group.members.items() if member_id not in leaving]
    return bool(staying) and all(member.uses_classic_protocol for member in staying)


def downgrade_error(group: ConsumerGroup, leaving: Collection[str], policy: str, max_size: int) -> str | None:
    """Why the group does not become a classic one when these members leave; None if it does. Log what is returned."""
    if policy not in DOWNGRADING_POLICIES:
        return "the online downgrade is disabled"
    size = len(group.members.keys() - leaving)
    if size > max_size:
        return f"its {size} members are more than group.max.size"
    return None


class Downgrade(NamedTuple):
    """The records of a downgrade, and the members with all protocols, of which the record has the chosen one."""

    records: list[Record]
    members: list[Member]


def downgrade(
    group: ConsumerGroup,
    leaving: Collection[str],
    topics: TopicView,
    now_ms: int,
    joining: ConsumerMember | None = None,
) -> Downgrade:
    """Make a classic group of the members that stay; they all use the classic protocol.

    `joining` has the place of the static member among `leaving` that it replaces. Raises KafkaError where the data of
    a member cannot be decoded.
    """
    membership = Membership(group.group_id)
    owned = {}
    for member in group.members.values():
        if member.member_id not in leaving:
            _enter(membership, member)
            owned[member.member_id] = member.assignment.assigned
        elif joining is not None and member.instance_id == joining.instance_id:
            _enter(membership, joining)
            owned[joining.member_id] = member.assignment.assigned
    membership.generation = group.epoch
    membership.state_timestamp_ms = now_ms
    try:
        if len(membership.members) not in membership.support.values():
            raise MalformedMessage("its members have no protocol in common")
        membership.protocol = protocol = membership.select_protocol()
        assignments = {
            member_id: encode_assignment(owned[member_id], member.protocols[protocol], topics)
            for member_id, member in membership.members.items()
        }
    except MalformedMessage as error:
        text = f"Cannot downgrade the consumer group {group.group_id}: {error}."
        _log.warning("%s", text)
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text) from error
    records = [
        *changes.group_tombstones(group),
        Record(GroupMetadataKey(group=group.group_id), membership.to_metadata(assignments)),
    ]
    return Downgrade(records, list(membership.members.values()))


def _enter(membership: Membership, member: ConsumerMember) -> None:
    subscription = member.subscription
    classic = subscription.classic
    assert classic is not None
    membership.add(
        Member(
            member.member_id,
            subscription.instance_id,
            subscription.client_id,
            subscription.client_host,
            rebalance_timeout_ms=subscription.rebalance_timeout_ms,
            session_timeout_ms=classic.session_timeout_ms,
            protocols=protocols_by_name(classic.supported_protocols),
            group_id=membership.group_id,
        ),
        CONSUMER_PROTOCOL_TYPE,
    )
