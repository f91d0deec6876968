"""The owners of partitions before and after a rebalance: which moved, and how long they had no owner.

A partition loses its owner when the member joins and its subscription does not list the partition any more (members of
the eager protocol list none), when the member is removed, or when its new assignment lacks the partition. It has an
owner again when the assignment is written that contains it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gregor.coordinator.history.assignments import Partitions, Undecodable, decode_subscription
from gregor.coordinator.history.rebalance import Claim, PartitionMap, Step
from gregor.protocol.ids import Uuid
from gregor.protocol.topic_partition import TopicPartitionKey
from gregor.protocol.turns import Steps

MAX_UNOWNED = 100_000
"""Partitions of all groups that have no owner and are remembered."""

NameOf = Callable[[Uuid], str]
_Claimed = tuple[int, Mapping[str, frozenset[int]]]
"""When a member joined, and the partitions that it then owned."""


class Move(NamedTuple):
    """The partitions of a topic that one member had and another one has; None where there is no such member."""

    topic: str
    from_member: str | None
    to_member: str | None


@dataclass(slots=True)
class Comparison:
    """The difference between two assignments. `without_owner_ms` is -1 if no partition was without owner."""

    partitions: int = 0
    moved: int = 0
    added: int = 0
    removed: int = 0
    without_owner: int = 0
    without_owner_ms: int = -1
    moves: dict[Move, list[int]] = field(default_factory=dict)

    def note_change(self, key: TopicPartitionKey, old: str | None, new: str | None) -> None:
        """Note a partition that has another owner than before."""
        if old is None:
            self.added += 1
        elif new is None:
            self.removed += 1
        else:
            self.moved += 1
        self.moves.setdefault(Move(key[0], old, new), []).append(key[1])

    def note_gap(self, gap_ms: int) -> None:
        """A partition had no owner for this time."""
        if gap_ms > 0:
            self.without_owner += 1
        self.without_owner_ms = max(self.without_owner_ms, gap_ms)


class Unowned:
    """When each partition without owner lost it, by group. The groups that were added first are forgotten first."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartitionKey, int]] = {}
        self._size = 0

    def of(self, group_id: str) -> Iterable[TopicPartitionKey]:
        """Return those of a group."""
        return self._groups.get(group_id, {}).keys()

    def pop(self, group_id: str) -> dict[TopicPartitionKey, int]:
        """Return and forget those of a group."""
        found = self._groups.pop(group_id, {})
        self._size -= len(found)
        return found

    def put(self, group_id: str, since_ms: dict[TopicPartitionKey, int]) -> None:
        """Remember those of a group."""
        self.pop(group_id)
        if not since_ms or len(since_ms) > MAX_UNOWNED:
            return
        self._groups[group_id] = since_ms
        self._size += len(since_ms)
        while self._size > MAX_UNOWNED:
            self.pop(next(iter(self._groups)))


def owners(assignments: Mapping[str, Partitions]) -> Steps[dict[TopicPartitionKey, str]]:
    """The owner of each partition, by the assignments of the members."""
    found: dict[TopicPartitionKey, str] = {}
    for name, assignment in assignments.items():
        for topic, numbers in assignment.items():
            for number in numbers:
                found[topic, number] = name
            yield None
    return found


def compare(
    before: Mapping[TopicPartitionKey, str],
    after: Mapping[TopicPartitionKey, str],
    releases: Releases,
    unowned: dict[TopicPartitionKey, int],
    ended_ms: int,
) -> Steps[Comparison]:
    """Compare the owners. `unowned` is brought up to date."""
    found = Comparison(partitions=len(after))
    for key, new in after.items():
        old = before.get(key)
        since_ms = unowned.pop(key, None) if old is None else releases.of(old, key)
        if since_ms is not None:
            found.note_gap(max(0, ended_ms - since_ms))
        elif old is not None:
            found.note_gap(0)
        if old != new:
            found.note_change(key, old, new)
        yield None
    for key, old in before.items():
        if key not in after:
            found.note_change(key, old, None)
            since_ms = releases.of(old, key)
            unowned[key] = ended_ms if since_ms is None else since_ms
        yield None
    return found


def owners_by_id(
    owned: Mapping[str, tuple[PartitionMap, PartitionMap]], name_of: NameOf
) -> Steps[dict[TopicPartitionKey, str]]:
    """The owner of each partition, by the assignments of members of the consumer protocol."""
    found: dict[TopicPartitionKey, str] = {}
    for name, both in owned.items():
        for key in _keys(both, name_of):
            found[key] = name
        yield None
    return found


def follow(
    before: Mapping[TopicPartitionKey, str],
    steps: Iterable[Step],
    unowned: dict[TopicPartitionKey, int],
    name_of: NameOf,
) -> Steps[Comparison]:
    """Compare the owners before the steps with those after them. `unowned` is brought up to date."""
    found = Comparison()
    owner = dict(before)
    for step in steps:
        had, has = _keys(step.before, name_of), _keys(step.after, name_of)
        for key in had - has:
            if owner.get(key) == step.name:
                del owner[key]
                unowned[key] = step.at_ms
        for key in has - had:
            since_ms = unowned.pop(key, None)
            if since_ms is not None:
                found.note_gap(max(0, step.at_ms - since_ms))
            owner[key] = step.name
        yield None
    found.partitions = len(owner)
    for key, new in owner.items():
        old = before.get(key)
        if old is not None:
            found.note_gap(0)
        if old != new:
            found.note_change(key, old, new)
        yield None
    for key, old in before.items():
        if key not in owner:
            found.note_change(key, old, None)
        yield None
    return found


def _keys(both: tuple[PartitionMap, PartitionMap], name_of: NameOf) -> set[TopicPartitionKey]:
    return {(name_of(topic_id), number) for part in both for topic_id, numbers in part.items() for number in numbers}


class Releases:
    """When members gave up partitions before the new assignment."""

    def __init__(self, claims: Mapping[str, Sequence[_Claimed]], gone: Mapping[str, int]) -> None:
        self._gone = gone
        self._claims = claims

    @classmethod
    def of_members(cls, claims: Mapping[str, Iterable[Claim]], gone: Mapping[str, int]) -> Steps[Releases]:
        """Decode what the members claimed in their joins, each in a step; `gone` has the times of removed ones."""
        decoded: dict[str, list[_Claimed]] = {}
        for name, some in claims.items():
            decoded[name] = [_claimed(claim) for claim in some]
            yield None
        return cls(decoded, gone)

    def of(self, name: str, key: TopicPartitionKey) -> int | None:
        """Return when the member gave the partition up; None if it did not."""
        topic, number = key
        for at_ms, owned in self._claims.get(name, ()):
            if number not in owned.get(topic, ()):
                return at_ms
        return self._gone.get(name)


def _claimed(claim: Claim) -> _Claimed:
    try:
        owned = decode_subscription(claim.subscription).owned or {}
    except Undecodable:
        owned = {}
    return claim.at_ms, {topic: frozenset(numbers) for topic, numbers in owned.items()}
