"""The uniform assignor: members have equally many partitions, and keep those that they have.

Where all members subscribe to the same topics, the numbers of their partitions differ by at most one, and no assignment
with that property moves fewer partitions. `heterogeneous` assigns where subscriptions differ. Racks do not
count, as in Apache Kafka since 4.0. Kafka: UniformAssignor, UniformHomogeneousAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gregor.coordinator.group.consumer.assignors.assignor import Assignment, MemberSpec, TopicSpec
from gregor.coordinator.group.consumer.assignors.heterogeneous import assign_heterogeneous
from gregor.coordinator.group.consumer.assignors.retained import Retained, retain
from gregor.protocol.ids import Uuid
from gregor.protocol.turns import ITEMS_PER_STEP, Steps


def assign_uniformly(
    members: Mapping[str, MemberSpec], topics: Mapping[Uuid, TopicSpec]
) -> Steps[dict[str, Assignment]]:
    """Return the partitions of each member: balanced first, then with as few moves as possible."""
    subscribed: frozenset[Uuid] = frozenset()
    for number, member in enumerate(members.values()):
        # Sets of equal subscriptions mostly are one object; a comparison lasts as long as it has topics.
        if number > 0 and member.topic_ids is not subscribed and member.topic_ids != subscribed:
            return (yield from assign_heterogeneous(members, topics))
        subscribed = member.topic_ids
        yield None
    return (yield from _assign_homogeneous(members, subscribed, topics))


def _assign_homogeneous(
    members: Mapping[str, MemberSpec], subscribed: frozenset[Uuid], topics: Mapping[Uuid, TopicSpec]
) -> Steps[dict[str, Assignment]]:
    counts: dict[Uuid, int] = {}
    for number, topic_id in enumerate(sorted(subscribed)):
        if number % ITEMS_PER_STEP == 0:
            yield None
        if topic_id in topics:
            counts[topic_id] = topics[topic_id].partition_count
    retained = yield from retain(members, counts)
    quotas = _quotas(retained, sum(counts.values()))
    yield None
    for member_id, quota in quotas.items():
        if retained.sizes[member_id] > quota:
            _release(retained, member_id, retained.sizes[member_id] - quota)
            yield None
    free: list[tuple[Uuid, list[int]]] = []
    for topic_id, count in counts.items():
        partitions = retained.free(topic_id, count)
        if partitions:
            free.append((topic_id, partitions))
        yield None
    yield from _fill(retained, quotas, free)
    return dict(retained.assignments)


def _quotas(retained: Retained, partition_count: int) -> dict[str, int]:
    """Return how many partitions each member gets. Members that already have one more keep it first."""
    if not retained.sizes:
        return {}
    quota, extra = divmod(partition_count, len(retained.sizes))
    quotas = dict.fromkeys(retained.sizes, quota)
    have_more = (member_id for member_id, size in retained.sizes.items() if size > quota)
    have_not = (member_id for member_id, size in retained.sizes.items() if size <= quota)
    for candidates in (have_more, have_not):
        extra = _raise_quotas(quotas, candidates, extra)
    return quotas


def _raise_quotas(quotas: dict[str, int], candidates: Iterable[str], extra: int) -> int:
    """Give one partition more to some candidates; return how many are left to give."""
    for member_id in candidates:
        if extra == 0:
            break
        quotas[member_id] += 1
        extra -= 1
    return extra


def _release(retained: Retained, member_id: str, surplus: int) -> None:
    """Release partitions of a member: the last ones of its last topics."""
    assignment = retained.assignments[member_id]
    for topic_id in sorted(assignment, reverse=True):
        released = sorted(assignment[topic_id])[-surplus:]
        retained.remove(member_id, topic_id, released)
        surplus -= len(released)
        if surplus == 0:
            break


def _fill(retained: Retained, quotas: Mapping[str, int], free: list[tuple[Uuid, list[int]]]) -> Steps[None]:
    """Give the free partitions, topic by topic, to the members below their quota."""
    position, used = 0, 0
    work = 0
    for member_id, quota in quotas.items():
        room = quota - retained.sizes[member_id]
        while room > 0:
            topic_id, partitions = free[position]
            given = partitions[used : used + room]
            retained.add(member_id, topic_id, given)
            room -= len(given)
            used += len(given)
            if used == len(partitions):
                position, used = position + 1, 0
            work += 1
            if work % ITEMS_PER_STEP == 0:
                yield None
