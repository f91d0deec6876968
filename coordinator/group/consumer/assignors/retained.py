"""The assignment that the uniform assignor begins with and changes: what members have of their subscriptions."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gregor.coordinator.group.consumer.assignors.assignor import Assignment, MemberSpec
from gregor.protocol.ids import Uuid
from gregor.protocol.turns import ITEMS_PER_STEP, Steps


class Retained:
    """Partitions by member and topic. `sizes` are the numbers of partitions of the members, in the order of their ids.

    A set of partitions that is not changed remains the object that the member has, without a copy.
    """

    def __init__(self) -> None:
        self.assignments: dict[str, dict[Uuid, frozenset[int]]] = {}
        self.sizes: dict[str, int] = {}
        self._owned: dict[Uuid, set[int]] = {}

    def add_member(self, member_id: str) -> None:
        """Begin with a member without partitions."""
        self.assignments[member_id] = {}
        self.sizes[member_id] = 0

    def claim(self, member_id: str, topic_id: Uuid, partitions: frozenset[int], count: int) -> None:
        """Keep those partitions of a topic that exist and that no member before has claimed."""
        owned = self._owned.setdefault(topic_id, set())
        if not owned.isdisjoint(partitions) or max(partitions, default=-1) >= count:
            partitions = frozenset(range(count)) & partitions - owned
        if partitions:
            self.assignments[member_id][topic_id] = partitions
            self.sizes[member_id] += len(partitions)
            owned |= partitions

    def add(self, member_id: str, topic_id: Uuid, partitions: Collection[int]) -> None:
        """Assign free partitions to a member."""
        assignment = self.assignments[member_id]
        present = assignment.get(topic_id)
        assignment[topic_id] = frozenset(partitions) if present is None else present.union(partitions)
        self.sizes[member_id] += len(partitions)
        self._owned.setdefault(topic_id, set()).update(partitions)

    def remove(self, member_id: str, topic_id: Uuid, partitions: Collection[int]) -> None:
        """Make partitions of a member free."""
        assignment = self.assignments[member_id]
        kept = assignment[topic_id].difference(partitions)
        if kept:
            assignment[topic_id] = kept
        else:
            del assignment[topic_id]
        self.sizes[member_id] -= len(partitions)
        self._owned[topic_id].difference_update(partitions)

    def free(self, topic_id: Uuid, count: int) -> list[int]:
        """Return the partitions of a topic that no member has, in order."""
        owned = self._owned.get(topic_id)
        return [partition for partition in range(count) if partition not in owned] if owned else list(range(count))


def retain(members: Mapping[str, MemberSpec], counts: Mapping[Uuid, int]) -> Steps[Retained]:
    """Return what the members have of the topics that exist and that they subscribe to."""
    retained = Retained()
    work = 0
    for member_id in sorted(members):
        member = members[member_id]
        retained.add_member(member_id)
        for topic_id, partitions in _subscribed(member):
            count = counts.get(topic_id)
            if count is not None:
                retained.claim(member_id, topic_id, partitions, count)
            work += 1
            if work % ITEMS_PER_STEP == 0:
                yield None
    return retained


def _subscribed(member: MemberSpec) -> list[tuple[Uuid, frozenset[int]]]:
    assigned: Assignment = member.assigned
    return [item for item in assigned.items() if item[0] in member.topic_ids]
