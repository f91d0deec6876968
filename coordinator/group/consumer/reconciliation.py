"""Reconciliation of one member of a consumer group with its target assignment, as a pure function.

The member converges to its target in steps, each of which is one heartbeat: it first revokes what it must no longer own
and confirms that, and only then it moves to the epoch of the target and gets its new partitions, as far as the members
that own them now have released them. Kafka: CurrentAssignmentBuilder and MemberState.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from gregor.coordinator.group.consumer.assignors.assignor import Assignment
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import Uuid


class MemberState(IntEnum):
    """The state of a member; the number is in ConsumerGroupCurrentMemberAssignmentValue."""

    STABLE = 0
    """The member owns its target assignment."""
    UNREVOKED_PARTITIONS = 1
    """The member must revoke partitions before it can move to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """The member is in the epoch of its target, and other members still own some of its partitions."""
    UNKNOWN = 127
    """A state of a newer version of Kafka."""


PartitionEpochs = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic id, each with the member epoch at which the member got it (KIP-1251). No topic is empty."""

NO_PARTITION_EPOCHS: PartitionEpochs = {}


class MemberAssignment(NamedTuple):
    """The partitions of one member and its epoch. Never changed in place."""

    state: MemberState = MemberState.STABLE
    epoch: int = 0
    previous_epoch: int = 0
    assigned: PartitionEpochs = NO_PARTITION_EPOCHS
    pending_revocation: PartitionEpochs = NO_PARTITION_EPOCHS


class Target(NamedTuple):
    """The partitions that a member will own in an epoch, and the existing topics that it subscribes to."""

    epoch: int
    assignment: Assignment
    subscribed_topic_ids: frozenset[Uuid]


IsFree = Callable[[Uuid, int], bool]
"""Return whether no member owns a partition: none is assigned it, and none has still to revoke it."""

_NONE: Mapping[int, int] = {}
_EMPTY: frozenset[int] = frozenset()


def reconcile(member: MemberAssignment, target: Target, owned: Assignment | None, is_free: IsFree) -> MemberAssignment:
    """Return the next assignment of a member, or the same object if it must wait.

    `owned` are the partitions that the member reports to own, None if it does not. Raises KafkaError for a member in a
    state of a newer version that does not begin without partitions.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == target.epoch:
            return _without_unsubscribed(member, target, owned)
        case MemberState.UNREVOKED_PARTITIONS if _owns_any(owned, member.pending_revocation):
            return _without_unsubscribed(member, target, owned)
        case MemberState.UNKNOWN if owned is None or owned:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "the member is in a state that this broker does not know; it must give up its partitions and rejoin",
            )
    reached = target.epoch if member.state is MemberState.UNKNOWN else member.epoch
    converged = _converge(member, reached, target, owned, is_free)
    return member if converged == member else converged


def _converge(
    member: MemberAssignment, epoch: int, target: Target, owned: Assignment | None, is_free: IsFree
) -> MemberAssignment:
    """Revoke what is not in the target, or else move to its epoch with the partitions of it that are free."""
    kept: dict[Uuid, Mapping[int, int]] = {}
    revoked: dict[Uuid, Mapping[int, int]] = {}
    added: dict[Uuid, list[int]] = {}
    waits = False
    for topic_id in target.assignment.keys() | member.assigned.keys():
        wanted = _wanted(target, topic_id)
        present = member.assigned.get(topic_id, _NONE)
        common, rest = _split(present, wanted)
        if common:
            kept[topic_id] = common
        if rest:
            revoked[topic_id] = rest
        own = member.pending_revocation.get(topic_id, _NONE)
        missing = [partition for partition in sorted(wanted) if partition not in present]
        # A partition that this member has to revoke has no other owner.
        free = [partition for partition in missing if partition in own or is_free(topic_id, partition)]
        if free:
            added[topic_id] = free
        waits = waits or len(free) < len(missing)
    if revoked and _owns_any(owned, revoked):
        return MemberAssignment(MemberState.UNREVOKED_PARTITIONS, epoch, member.epoch, kept, revoked)
    for topic_id, partitions in added.items():
        kept[topic_id] = {**kept.get(topic_id, _NONE), **dict.fromkeys(partitions, target.epoch)}
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return MemberAssignment(state, target.epoch, member.epoch, kept)


def _without_unsubscribed(member: MemberAssignment, target: Target, owned: Assignment | None) -> MemberAssignment:
    """Revoke the topics that the member has unsubscribed from, within its epoch."""
    if member.assigned.keys() <= target.subscribed_topic_ids:
        return member
    kept: dict[Uuid, Mapping[int, int]] = {}
    revoked = dict(member.pending_revocation)
    for topic_id, partitions in member.assigned.items():
        if topic_id in target.subscribed_topic_ids:
            kept[topic_id] = partitions
        else:
            revoked[topic_id] = {**revoked.get(topic_id, _NONE), **partitions}
    if _owns_any(owned, revoked):
        return MemberAssignment(MemberState.UNREVOKED_PARTITIONS, member.epoch, member.epoch, kept, revoked)
    return member._replace(previous_epoch=member.epoch, assigned=kept)


def _wanted(target: Target, topic_id: Uuid) -> frozenset[int]:
    if topic_id not in target.subscribed_topic_ids:
        return _EMPTY
    return target.assignment.get(topic_id, _EMPTY)


def _split(present: Mapping[int, int], wanted: frozenset[int]) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Return the partitions that are wanted, and the others."""
    if present.keys() <= wanted:
        return present, _NONE
    common = {partition: epoch for partition, epoch in present.items() if partition in wanted}
    return common, {partition: epoch for partition, epoch in present.items() if partition not in wanted}


def _owns_any(owned: Assignment | None, partitions: PartitionEpochs) -> bool:
    """Return whether a member owns any of the partitions. It does if it does not report what it owns."""
    if owned is None:
        return True
    return any(not partitions[topic_id].keys().isdisjoint(owned[topic_id]) for topic_id in partitions.keys() & owned)
