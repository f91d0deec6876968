"""The types of assignors: pure functions from members and topics to an assignment.

An assignor of the coordinator distributes the partitions of all subscribed topics among the members of a group. Kafka:
ConsumerGroupPartitionAssignor, GroupSpec and SubscribedTopicDescriber.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from gregor.protocol.ids import Uuid
from gregor.protocol.turns import Steps

Assignment = Mapping[Uuid, frozenset[int]]
"""The partitions of each topic id; no topic has an empty set."""

NO_PARTITIONS: Assignment = {}


class MemberSpec(NamedTuple):
    """One member, as an assignor sees it.

    `topic_ids` are the existing topics that the member subscribes to, by name or by regular expression. `assigned` is
    its present target assignment.
    """

    instance_id: str | None
    rack: str | None
    topic_ids: frozenset[Uuid]
    assigned: Assignment


class TopicSpec(NamedTuple):
    """One topic, as an assignor sees it; `racks` are those of the replicas of each partition, empty when unknown."""

    partition_count: int
    racks: tuple[tuple[str, ...], ...] = ()


Assignor = Callable[[Mapping[str, MemberSpec], Mapping[Uuid, TopicSpec]], Steps[dict[str, Assignment]]]
"""From member ids and topic ids to the assignment of every member, in steps. A topic that members subscribe to and that
is missing in the topics is not assigned. The same arguments in any order have the same result."""
