"""Reconciliation: the table of its steps, and no partition with two owners, whatever members do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.coordinator.group.consumer.assignors.assignor import Assignment, MemberSpec, TopicSpec
from gregor.coordinator.group.consumer.assignors.table import ASSIGNORS
from gregor.coordinator.group.consumer.reconciliation import (
    MemberAssignment,
    MemberState,
    PartitionEpochs,
    Target,
    reconcile,
)
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import Uuid
from gregor.protocol.turns import run_all

A, B = bytes([1]) * 16, bytes([2]) * 16
TOPICS = {"a": A, "b": B}

STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState


def epochs(text: str) -> PartitionEpochs:
    """ "a1@5 a2@5 b0@6" are partitions with the epochs at which the member got them."""
    found: dict[Uuid, dict[int, int]] = {}
    for word in text.split():
        place, epoch = word.split("@")
        found.setdefault(TOPICS[place[0]], {})[int(place[1:])] = int(epoch)
    return found


def partitions(text: str) -> Assignment:
    """ "a1 b0" are partitions."""
    found: dict[Uuid, set[int]] = {}
    for word in text.split():
        found.setdefault(TOPICS[word[0]], set()).add(int(word[1:]))
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}


def member(
    state: MemberState, epoch: int, assigned: str = "", pending: str = "", previous: int = 9
) -> MemberAssignment:
    return MemberAssignment(state, epoch, previous, epochs(assigned), epochs(pending))


STEPS: list[Any] = [
    # name, before, target epoch and partitions, owned (None: not reported), others own, subscribed, after
    ("a new member gets free partitions", member(STABLE, 0), (10, "a1 b0"), "", "", "ab",
     member(STABLE, 10, "a1@10 b0@10", previous=0)),
    ("a new member waits for others", member(STABLE, 0), (10, "a1 a2"), "", "a2", "ab",
     member(UNRELEASED, 10, "a1@10", previous=0)),
    ("a new member waits for all", member(STABLE, 0), (10, "a2"), "", "a2", "ab",
     member(UNRELEASED, 10, previous=0)),
    ("stable and nothing new", member(STABLE, 10, "a1@10"), (10, "a1"), None, "", "ab", None),
    ("a new epoch with the same target", member(STABLE, 10, "a1@10"), (11, "a1"), None, "", "ab",
     member(STABLE, 11, "a1@10", previous=10)),
    ("more partitions keep the epochs of the others", member(STABLE, 10, "a1@10"), (11, "a1 a2"), None, "", "ab",
     member(STABLE, 11, "a1@10 a2@11", previous=10)),
    ("a partition must be revoked first", member(STABLE, 10, "a1@10 a2@10"), (11, "a1 a3"), None, "", "ab",
     member(UNREVOKED, 10, "a1@10", "a2@10", previous=10)),
    ("revoked before it was told to", member(STABLE, 10, "a1@10 a2@10"), (11, "a1"), "a1", "", "ab",
     member(STABLE, 11, "a1@10", previous=10)),
    ("not yet confirmed", member(UNREVOKED, 10, "a1@10", "a2@10", 10), (11, "a1 a3"), None, "", "ab", None),
    ("not yet revoked", member(UNREVOKED, 10, "a1@10", "a2@10", 10), (11, "a1 a3"), "a1 a2", "", "ab", None),
    ("revoked", member(UNREVOKED, 10, "a1@10", "a2@10", 10), (11, "a1 a3"), "a1", "", "ab",
     member(STABLE, 11, "a1@10 a3@11", previous=10)),
    ("revoked, and a newer target revokes more", member(UNREVOKED, 10, "a1@10 a4@9", "a2@10", 10), (12, "a1"),
     "a1 a4", "", "ab", member(UNREVOKED, 10, "a1@10", "a4@9", previous=10)),
    ("revoked, and a newer target has it again", member(UNREVOKED, 10, "a1@10", "a2@10", 10), (12, "a1 a2"), "a1",
     "a2", "ab", member(STABLE, 12, "a1@10 a2@12", previous=10)),
    ("still unreleased", member(UNRELEASED, 10, "a1@10", previous=10), (10, "a1 a2"), None, "a2", "ab", None),
    ("one of two is released", member(UNRELEASED, 10, "a1@10"), (10, "a1 a2 a3"), None, "a3", "ab",
     member(UNRELEASED, 10, "a1@10 a2@10", previous=10)),
    ("released", member(UNRELEASED, 10, "a1@10"), (10, "a1 a2"), None, "", "ab",
     member(STABLE, 10, "a1@10 a2@10", previous=10)),
    ("unreleased, and a newer target revokes", member(UNRELEASED, 10, "a1@10"), (11, "a2"), None, "a2", "ab",
     member(UNREVOKED, 10, "", "a1@10", previous=10)),
    ("unreleased, and a newer target has no more of it", member(UNRELEASED, 10, "a1@10"), (11, "a1"), None, "a2",
     "ab", member(STABLE, 11, "a1@10", previous=10)),
    ("unsubscribed in the same epoch", member(STABLE, 10, "a1@10 b0@10"), (10, "a1 b0"), None, "", "a",
     member(UNREVOKED, 10, "a1@10", "b0@10", previous=10)),
    ("unsubscribed and revoked at once", member(STABLE, 10, "a1@10 b0@10"), (10, "a1 b0"), "a1", "", "a",
     member(STABLE, 10, "a1@10", previous=10)),
    ("unsubscribed while it revokes", member(UNREVOKED, 10, "a1@10 b0@9", "a2@10"), (11, "a1 b0"), "a1 a2 b0", "",
     "a", member(UNREVOKED, 10, "a1@10", "a2@10 b0@9", previous=10)),
    ("a target of a topic that is unsubscribed", member(STABLE, 10), (11, "a1 b0"), "", "", "a",
     member(STABLE, 11, "a1@11", previous=10)),
    ("a state of a newer version", member(UNKNOWN, 10, "a1@10"), (12, "a2"), "", "", "ab",
     member(STABLE, 12, "a2@12", previous=10)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "target", "owned", "others", "subscribed", "after"),
    [pytest.param(*step[1:], id=step[0]) for step in STEPS],
)
def test_each_step(
    before: MemberAssignment,
    target: tuple[int, str],
    owned: str | None,
    others: str,
    subscribed: str,
    after: MemberAssignment | None,
) -> None:
    taken = {(topic_id, number) for topic_id, numbers in partitions(others).items() for number in numbers}
    own = {
        (topic_id, number)
        for owned_now in (before.assigned, before.pending_revocation)
        for topic_id, numbers in owned_now.items()
        for number in numbers
    }
    aim = Target(target[0], partitions(target[1]), frozenset(TOPICS[name] for name in subscribed))
    reported = None if owned is None else partitions(owned)
    result = reconcile(before, aim, reported, lambda topic_id, number: (topic_id, number) not in taken | own)
    if after is None:
        assert result is before
    else:
        assert result == after


@pytest.mark.parametrize("owned", [None, "a1"])
def test_a_member_in_an_unknown_state_is_fenced_unless_it_begins_anew(owned: str | None) -> None:
    reported = None if owned is None else partitions(owned)
    with pytest.raises(KafkaError) as caught:
        reconcile(member(UNKNOWN, 10, "a1@10"), Target(11, {}, frozenset()), reported, lambda topic_id, number: True)
    assert caught.value.code == ErrorCode.FENCED_MEMBER_EPOCH


# --- no partition has two owners


class Client:
    """A consumer: it owns partitions until it revokes them, and may be slow to do either."""

    def __init__(self) -> None:
        self.owned: dict[Uuid, frozenset[int]] = {}
        self.received: Mapping[Uuid, frozenset[int]] | None = None

    def revoke(self) -> None:
        """Give up what is not in the assignment that was received last."""
        if self.received is not None:
            kept = {
                topic_id: numbers & self.received.get(topic_id, frozenset()) for topic_id, numbers in self.owned.items()
            }
            self.owned = {topic_id: numbers for topic_id, numbers in kept.items() if numbers}

    def use(self) -> None:
        """Begin to use the whole assignment, after giving up the rest."""
        if self.received is not None:
            self.owned = dict(self.received)


class World:
    """A group with its members, their clients, and a target that changes."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.topics = {A: TopicSpec(4), B: TopicSpec(3)}
        self.epoch = 1
        self.target: dict[str, Assignment] = {}
        self.members: dict[str, MemberAssignment] = {}
        self.subscribed: dict[str, frozenset[Uuid]] = {}
        self.clients: dict[str, Client] = {}
        self.joined = 0

    def owner_count(self, topic_id: Uuid, number: int) -> int:
        return sum(
            number in owned.get(topic_id, {})
            for one in self.members.values()
            for owned in (one.assigned, one.pending_revocation)
        )

    def join(self) -> None:
        name = f"m{self.joined}"
        self.joined += 1
        self.members[name] = MemberAssignment()
        self.clients[name] = Client()
        self.subscribe(name)

    def leave(self) -> None:
        name = self.random.choice(sorted(self.members))
        for state in (self.members, self.subscribed, self.clients):
            state.pop(name)
        self.compute_target()

    def subscribe(self, name: str) -> None:
        self.subscribed[name] = self.random.choice([frozenset({A, B}), frozenset({A}), frozenset({B})])
        if self.random.random() < 0.8:
            # Sometimes the computation is delayed: the target is the old one for some time.
            self.compute_target()

    def compute_target(self) -> None:
        self.epoch += 1
        specs = {
            name: MemberSpec(None, None, self.subscribed[name], self.target.get(name, {})) for name in self.members
        }
        self.target = run_all(ASSIGNORS[self.random.choice(["uniform", "range"])](specs, self.topics))

    def heartbeat(self, name: str, report: bool) -> None:
        client, before = self.clients[name], self.members[name]
        owned = dict(client.owned) if report else None
        target = Target(self.epoch, self.target.get(name, {}), self.subscribed[name])
        after = reconcile(before, target, owned, lambda topic_id, number: not self.owner_count(topic_id, number))
        assert (after is before) == (after == before)
        self.members[name] = after
        client.received = {topic_id: frozenset(numbers) for topic_id, numbers in after.assigned.items()}
        self.check(name, after)

    def check(self, name: str, after: MemberAssignment) -> None:
        for topic_id, topic in self.topics.items():
            for number in range(topic.partition_count):
                assert self.owner_count(topic_id, number) <= 1
                users = [
                    name for name, client in self.clients.items() if number in client.owned.get(topic_id, frozenset())
                ]
                assert len(users) <= 1
        assert after.epoch <= self.epoch
        assert after.previous_epoch <= after.epoch
        assert all(epoch <= after.epoch for numbers in after.assigned.values() for epoch in numbers.values())
        assert bool(after.pending_revocation) == (after.state is UNREVOKED)
        assert all(after.assigned.values()) and all(after.pending_revocation.values())

    def act(self) -> None:
        match self.random.randrange(10):
            case 0 if len(self.members) < 5:
                self.join()
            case 1 if self.members:
                self.leave()
            case 2 if self.members:
                self.subscribe(self.random.choice(sorted(self.members)))
            case 3 if self.random.random() < 0.3:
                self.compute_target()
            case number if self.members:
                name = self.random.choice(sorted(self.members))
                client = self.clients[name]
                if number < 6:
                    self.heartbeat(name, report=self.random.random() < 0.5)
                elif number < 8:
                    client.revoke()
                else:
                    client.use()

    def settle(self) -> None:
        """Everyone does what it has to, often enough."""
        self.compute_target()
        for _ in range(4):
            for name, client in self.clients.items():
                self.heartbeat(name, report=True)
                client.use()


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_no_partition_has_two_owners_and_all_members_reach_their_target(seed: int) -> None:
    world = World(Random(seed))
    for _ in range(60):
        world.act()
    world.settle()
    for name, one in world.members.items():
        assert one.state is STABLE
        assert one.epoch == world.epoch
        assert {topic_id: frozenset(numbers) for topic_id, numbers in one.assigned.items()} == world.target[name]
    if world.members:
        owners = Counter(
            (topic_id, number)
            for client in world.clients.values()
            for topic_id, numbers in client.owned.items()
            for number in numbers
        )
        subscribed = frozenset[Uuid]().union(*world.subscribed.values())
        assert owners == {
            (topic_id, number): 1 for topic_id in subscribed for number in range(world.topics[topic_id].partition_count)
        }
