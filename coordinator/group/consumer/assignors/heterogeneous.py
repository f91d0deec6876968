"""The uniform assignor where members subscribe to different topics.

Members keep what they have of their subscriptions. Partitions without owner go to the subscribers that have fewest, the
topics with most partitions per subscriber first. Then partitions move from members with more to members with fewer,
among the subscribers of one topic, until no such move makes the numbers more equal or MAX_ROUNDS is reached. Topics
with the same subscribers are balanced together. Kafka: UniformHeterogeneousAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from gregor.coordinator.group.consumer.assignors.assignor import Assignment, MemberSpec, TopicSpec
from gregor.coordinator.group.consumer.assignors.retained import Retained, retain
from gregor.protocol.ids import Uuid
from gregor.protocol.turns import ITEMS_PER_STEP, Steps

MAX_ROUNDS = 16
"""A round about halves the differences between members whose subscriptions overlap; most groups need two."""


_Partition = tuple[Uuid, int]
_NONE: frozenset[int] = frozenset()


class _Pool(NamedTuple):
    """The topics that the same members subscribe to, in the order in which their partitions are assigned.

    `subscribers` are the members by their numbers in the order of their ids.
    """

    subscribers: list[int]
    topic_ids: dict[Uuid, None]


def assign_heterogeneous(
    members: Mapping[str, MemberSpec], topics: Mapping[Uuid, TopicSpec]
) -> Steps[dict[str, Assignment]]:
    """Return the partitions of each member."""
    counts = {topic_id: topic.partition_count for topic_id, topic in topics.items()}
    retained = yield from retain(members, counts)
    pools = yield from _pools(members, counts)
    loads = list(retained.sizes.values())
    balancer = _Balancer(members, retained, loads)
    for pool in pools:
        yield from balancer.assign_free(pool, counts)
    shared = [pool for pool in pools if len(pool.subscribers) > 1]
    unchanged = 0
    for _ in range(MAX_ROUNDS):
        for pool in shared:
            moved = yield from balancer.balance(pool)
            unchanged = 0 if moved else unchanged + 1
            if unchanged >= len(shared):
                return dict(retained.assignments)
    return dict(retained.assignments)


def _pools(members: Mapping[str, MemberSpec], counts: Mapping[Uuid, int]) -> Steps[list[_Pool]]:
    """Return the topics by their subscribers, those with most partitions per subscriber first."""
    by_subscription: dict[frozenset[Uuid], list[int]] = {}
    for number, member_id in enumerate(sorted(members)):
        by_subscription.setdefault(members[member_id].topic_ids, []).append(number)
        yield None
    classes: dict[Uuid, list[int]] = {}
    subscribers = list(by_subscription.values())
    work = 0
    for position, topic_ids in enumerate(by_subscription):
        for topic_id in topic_ids:
            if topic_id in counts:
                classes.setdefault(topic_id, []).append(position)
            work += 1
            if work % ITEMS_PER_STEP == 0:
                yield None
    by_classes: dict[tuple[int, ...], list[Uuid]] = {}
    for topic_id in sorted(classes):
        by_classes.setdefault(tuple(classes[topic_id]), []).append(topic_id)
    yield None
    pools = []
    for positions, topic_ids_of_pool in by_classes.items():
        numbers = sorted(number for position in positions for number in subscribers[position])
        topic_ids_of_pool.sort(key=counts.__getitem__, reverse=True)
        pools.append(_Pool(numbers, dict.fromkeys(topic_ids_of_pool)))
        yield None
    pools.sort(key=lambda pool: (-_most_partitions(pool, counts) / len(pool.subscribers), len(pool.subscribers)))
    return pools


def _most_partitions(pool: _Pool, counts: Mapping[Uuid, int]) -> int:
    return counts[next(iter(pool.topic_ids))]


class _Balancer:
    """Assigns and moves partitions; `loads` are the numbers of partitions of the members."""

    def __init__(self, members: Mapping[str, MemberSpec], retained: Retained, loads: list[int]) -> None:
        self._members = members
        self._retained = retained
        self._member_ids = list(retained.sizes)
        self._loads = loads

    def assign_free(self, pool: _Pool, counts: Mapping[Uuid, int]) -> Steps[None]:
        """Give the partitions without owner to the subscribers with fewest partitions."""
        loads = self._loads
        by_load = [(loads[number], number) for number in pool.subscribers]
        heapify(by_load)
        work = 0
        for topic_id in pool.topic_ids:
            given: dict[int, list[int]] = {}
            for partition in self._retained.free(topic_id, counts[topic_id]):
                load, number = by_load[0]
                given.setdefault(number, []).append(partition)
                heapreplace(by_load, (load + 1, number))
                work += 1
                if work % ITEMS_PER_STEP == 0:
                    yield None
            for number, partitions in given.items():
                self._retained.add(self._member_ids[number], topic_id, partitions)
            yield None
        for load, number in by_load:
            loads[number] = load

    def balance(self, pool: _Pool) -> Steps[bool]:
        """Move partitions from subscribers with more to subscribers with fewer; return whether any has moved."""
        loads = self._loads
        fewest = [(loads[number], number) for number in pool.subscribers]
        most = [(-load, -number) for load, number in fewest]
        heapify(fewest)
        heapify(most)
        yield None
        moves = _Moves()
        owned: dict[int, list[_Partition]] = {}
        # A receiver has at most one partition more than the subscriber with fewest, and a giver at most one less than
        # the one with most: neither becomes the other. So an entry is right when it is the first one of its heap.
        while most and -most[0][0] - fewest[0][0] > 1:
            giver = -most[0][1]
            if giver not in owned:
                owned[giver] = self._owned(giver, pool)
            if owned[giver]:
                receiver = fewest[0][1]
                moves.add(giver, receiver, owned[giver].pop())
                loads[giver] -= 1
                loads[receiver] += 1
                heapreplace(most, (-loads[giver], -giver))
                heapreplace(fewest, (loads[receiver], receiver))
            else:
                heappop(most)
            yield None
        yield from moves.apply(self._retained, self._member_ids)
        return bool(moves.given)

    def _owned(self, number: int, pool: _Pool) -> list[_Partition]:
        """Return the partitions of the pool that a member has, those that it had before first: they move last."""
        member_id = self._member_ids[number]
        assignment, before = self._retained.assignments[member_id], self._members[member_id].assigned
        owned: list[_Partition] = []
        received: list[_Partition] = []
        for topic_id in sorted(assignment.keys() & pool.topic_ids):
            kept = before.get(topic_id, _NONE)
            for partition in sorted(assignment[topic_id]):
                (owned if partition in kept else received).append((topic_id, partition))
        return owned + received


class _Moves:
    """Partitions that move, by topic and by the numbers of the members that give and receive them."""

    def __init__(self) -> None:
        self.given: dict[tuple[int, Uuid], list[int]] = {}
        self.received: dict[tuple[int, Uuid], list[int]] = {}

    def add(self, giver: int, receiver: int, moved: _Partition) -> None:
        topic_id, partition = moved
        self.given.setdefault((giver, topic_id), []).append(partition)
        self.received.setdefault((receiver, topic_id), []).append(partition)

    def apply(self, retained: Retained, member_ids: list[str]) -> Steps[None]:
        """Change the assignments of the members."""
        for (number, topic_id), partitions in self.given.items():
            retained.remove(member_ids[number], topic_id, partitions)
            yield None
        for (number, topic_id), partitions in self.received.items():
            retained.add(member_ids[number], topic_id, partitions)
            yield None
