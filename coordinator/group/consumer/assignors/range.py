"""The range assignor: each subscriber of a topic gets a range of its partitions.

Members have the same order for every topic: static ones by instance id, then the others by member id. So members of the
same subscription get the same partition numbers of topics with as many partitions, as a join of them needs, and static
members keep their partitions over a restart. The present assignment does not count. Kafka: RangeAssignor.
"""

from __future__ import annotations

from collections.abc import Mapping

from gregor.coordinator.group.consumer.assignors.assignor import Assignment, MemberSpec, TopicSpec
from gregor.protocol.ids import Uuid
from gregor.protocol.turns import ITEMS_PER_STEP, Steps


def assign_ranges(members: Mapping[str, MemberSpec], topics: Mapping[Uuid, TopicSpec]) -> Steps[dict[str, Assignment]]:
    """Return the partitions of each member. The first subscribers of a topic get one partition more than the others."""
    assignments: dict[str, dict[Uuid, frozenset[int]]] = {member_id: {} for member_id in members}
    subscribers = yield from _subscribers(members)
    work = 0
    for topic_id, member_ids in subscribers.items():
        topic = topics.get(topic_id)
        if topic is None:
            continue
        quota, extra = divmod(topic.partition_count, len(member_ids))
        start = 0
        # Members after the last partition get none.
        for position, member_id in enumerate(member_ids[: topic.partition_count]):
            end = start + quota + (position < extra)
            assignments[member_id][topic_id] = frozenset(range(start, end))
            start = end
            work += 1
            if work % ITEMS_PER_STEP == 0:
                yield None
    return dict(assignments)


def _subscribers(members: Mapping[str, MemberSpec]) -> Steps[dict[Uuid, list[str]]]:
    """Return the members that subscribe to each topic, in their order."""
    in_order = sorted(members, key=lambda member_id: _order(member_id, members[member_id]))
    by_subscription: dict[frozenset[Uuid], list[tuple[int, str]]] = {}
    for position, member_id in enumerate(in_order):
        by_subscription.setdefault(members[member_id].topic_ids, []).append((position, member_id))
        yield None
    if len(by_subscription) == 1:
        return dict.fromkeys(next(iter(by_subscription)), in_order)
    subscribers: dict[Uuid, list[tuple[int, str]]] = {}
    for topic_ids, subscribed in by_subscription.items():
        for number, topic_id in enumerate(topic_ids):
            subscribers.setdefault(topic_id, []).extend(subscribed)
            if number % ITEMS_PER_STEP == 0:
                yield None
    ordered: dict[Uuid, list[str]] = {}
    for topic_id, subscribed in subscribers.items():
        subscribed.sort()
        ordered[topic_id] = [member_id for _, member_id in subscribed]
        yield None
    return ordered


def _order(member_id: str, member: MemberSpec) -> tuple[bool, str, str]:
    return member.instance_id is None, member.instance_id or "", member_id
