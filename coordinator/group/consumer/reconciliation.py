"""Reconciliation of one member of a consumer group with its target assignment, as a pure function.

The member converges to its target in steps, each of which is one heartbeat: it first revokes what it must no longer own
and confirms that, and only then it moves to the epoch of the target and gets its new partitions, as far as the members
that own them now have released them. Kafka: CurrentAssignmentBuilder and MemberState.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from gregor.coordinator.group.consumer.assignor import Assignment
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
"""Whether no member owns a partition: none is assigned it, and none has still to revoke it."""
