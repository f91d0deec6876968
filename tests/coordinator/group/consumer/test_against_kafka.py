"""Assignors, reconciliation and hashes of topics against Apache Kafka 4.3.1's own classes, for random groups."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import pytest

from gregor.coordinator.group.consumer.assignors.assignor import Assignment, MemberSpec, TopicSpec
from gregor.coordinator.group.consumer.assignors.table import ASSIGNORS
from gregor.coordinator.group.consumer.metadata_hash import group_hash, topic_hash
from gregor.coordinator.group.consumer.reconciliation import (
    MemberAssignment,
    MemberState,
    PartitionEpochs,
    Target,
    reconcile,
)
from gregor.coordinator.ports import TopicInfo
from gregor.protocol.errors import KafkaError
from gregor.protocol.ids import Uuid, uuid_to_text
from gregor.protocol.turns import run_all
from tests.support.kafka import java_command
from tests.support.processes import ROOT

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

SOURCE = ROOT / "tests/coordinator/group/consumer/GroupJudge.java"
CASES = 3000
IDS = [bytes([0x10 + number] * 16) for number in range(5)]

Group = tuple[dict[str, MemberSpec], dict[Uuid, TopicSpec]]


def judge(documents: Iterable[dict[str, Any]]) -> list[Any]:
    """Return the results of Kafka's classes."""
    text = "\n".join(map(json.dumps, documents))
    done = subprocess.run(
        java_command(str(SOURCE)), input=text, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def as_lists(assignment: Assignment) -> dict[str, list[int]]:
    return {uuid_to_text(topic_id): sorted(numbers) for topic_id, numbers in assignment.items()}


def as_epochs(partitions: PartitionEpochs) -> dict[str, dict[str, int]]:
    return {
        uuid_to_text(topic_id): {str(number): epoch for number, epoch in numbers.items()}
        for topic_id, numbers in partitions.items()
    }


# --- assignors


def random_group(random: Random, *, homogeneous: bool) -> Group:
    """Members of existing topics with a valid assignment, sometimes of topics that they do not subscribe to."""
    topics = {topic_id: TopicSpec(random.randint(1, 7)) for topic_id in random.sample(IDS, random.randint(1, 5))}

    def subscription() -> frozenset[Uuid]:
        return frozenset(random.sample(list(topics), random.randint(1, len(topics))))

    shared = subscription()
    assigned: list[dict[Uuid, set[int]]] = [{} for _ in range(random.randint(1, 6))]
    fullness = random.random()
    for topic_id, topic in topics.items():
        for number in range(topic.partition_count):
            if random.random() < fullness:
                random.choice(assigned).setdefault(topic_id, set()).add(number)
    members = {
        f"m{number}": MemberSpec(
            random.choice([None, f"i{random.randrange(100)}-{number}"]),
            random.choice([None, "r1"]),
            shared if homogeneous else subscription(),
            {topic_id: frozenset(numbers) for topic_id, numbers in owned.items()},
        )
        for number, owned in enumerate(assigned)
    }
    return members, topics


def document(name: str, group: Group) -> dict[str, Any]:
    members, topics = group
    return {
        "assignor": name,
        "topics": {uuid_to_text(topic_id): topic.partition_count for topic_id, topic in topics.items()},
        "members": {
            member_id: {
                "instance": spec.instance_id,
                "rack": spec.rack,
                "topics": sorted(map(uuid_to_text, spec.topic_ids)),
                "assigned": as_lists(spec.assigned),
            }
            for member_id, spec in members.items()
        },
    }


def ours(name: str, group: Group) -> dict[str, dict[str, list[int]]]:
    return {member_id: as_lists(made) for member_id, made in run_all(ASSIGNORS[name](*group)).items()}


def kept(group: Group, made: Mapping[str, Mapping[str, list[int]]]) -> int:
    return sum(
        len(numbers.intersection(made.get(member_id, {}).get(uuid_to_text(topic_id), [])))
        for member_id, spec in group[0].items()
        for topic_id, numbers in spec.assigned.items()
    )


def spread(made: Mapping[str, Mapping[str, list[int]]]) -> int:
    """The less, the more balanced."""
    return sum(sum(map(len, topics.values())) ** 2 for topics in made.values())


def test_ranges_equal_those_of_kafka() -> None:
    random = Random(848)
    groups = [random_group(random, homogeneous=random.random() < 0.5) for _ in range(CASES)]
    for group, theirs in zip(groups, judge(document("range", group) for group in groups), strict=True):
        assert ours("range", group) == theirs


def test_equal_subscriptions_are_as_balanced_and_move_no_more_than_with_kafka() -> None:
    random = Random(849)
    groups = [random_group(random, homogeneous=True) for _ in range(CASES)]
    for group, theirs in zip(groups, judge(document("uniform", group) for group in groups), strict=True):
        made = ours("uniform", group)
        assert spread(made) == spread(theirs)
        assert kept(group, made) >= kept(group, theirs)


def test_different_subscriptions_are_as_balanced_and_move_no_more_than_with_kafka() -> None:
    random = Random(850)
    groups = [random_group(random, homogeneous=False) for _ in range(CASES)]
    theirs = judge(document("uniform", group) for group in groups)
    made = [ours("uniform", group) for group in groups]
    assert sum(map(spread, made)) <= sum(map(spread, theirs))
    assert sum(map(kept, groups, made)) >= sum(map(kept, groups, theirs))


# --- reconciliation


class Case:
    """A member in any state, its target, what it reports to own, and what others own."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.topic_ids = IDS[:2]
        state = random.choice([*MemberState][:3] * 5 + [MemberState.UNKNOWN])
        epoch = random.randint(0, 3)
        assigned = self.some(0.4)
        pending = self.some(0.3, assigned) if state is MemberState.UNREVOKED_PARTITIONS else {}
        self.epochs = {topic_id: dict(numbers) for topic_id, numbers in self.some(0.3, assigned, pending).items()}
        for partitions in (assigned, pending):
            for topic_id, numbers in partitions.items():
                self.epochs.setdefault(topic_id, {}).update(numbers)
        self.member = MemberAssignment(state, epoch, random.randint(0, epoch), assigned, pending)
        target = {topic_id: frozenset(numbers) for topic_id, numbers in self.some(0.4).items()}
        subscribed = frozenset(topic_id for topic_id in self.topic_ids if random.random() < 0.8)
        self.target = Target(epoch + random.choice([0, 0, 1, 2]), target, subscribed)
        self.owned: Assignment | None = None
        if random.random() < 0.7:
            held = random.choice([assigned, self.epochs, {}, self.some(0.5)])
            self.owned = {topic_id: frozenset(numbers) for topic_id, numbers in held.items()}

    def some(self, chance: float, *others: Mapping[Uuid, Mapping[int, int]]) -> dict[Uuid, dict[int, int]]:
        """Random partitions with epochs, none of which is among the others."""
        found: dict[Uuid, dict[int, int]] = {}
        for topic_id in self.topic_ids:
            for number in range(4):
                free = not any(number in partitions.get(topic_id, ()) for partitions in others)
                if free and self.random.random() < chance:
                    found.setdefault(topic_id, {})[number] = self.random.randint(1, 9)
        return found

    def document(self) -> dict[str, Any]:
        state, epoch, previous, assigned, pending = self.member
        return {
            "state": int(state),
            "epoch": epoch,
            "previous": previous,
            "assigned": as_epochs(assigned),
            "pending": as_epochs(pending),
            "targetEpoch": self.target.epoch,
            "target": as_lists(self.target.assignment),
            "subscribed": sorted(map(uuid_to_text, self.target.subscribed_topic_ids)),
            "owned": None if self.owned is None else as_lists(self.owned),
            "epochs": as_epochs(self.epochs),
        }

    def result(self) -> Any:
        try:
            after = reconcile(
                self.member,
                self.target,
                self.owned,
                lambda topic_id, number: number not in self.epochs.get(topic_id, {}),
            )
        except KafkaError:
            return "fenced"
        state, epoch, previous, assigned, pending = after
        return [int(state), epoch, previous, as_epochs(assigned), as_epochs(pending)]


def test_reconciliation_equals_that_of_kafka() -> None:
    random = Random(851)
    cases = [Case(random) for _ in range(5 * CASES)]
    documents = [case.document() for case in cases]
    for case, theirs, given in zip(cases, judge(documents), documents, strict=True):
        assert case.result() == theirs, given


# --- hashes of topics


def random_topics(random: Random) -> dict[str, TopicInfo]:
    """Topics whose replicas have racks or not; names sort by code units, which are not the characters of all racks."""
    racks = ["", "r1", "r2", "eu-west-1", "\u00e9", "\uffee", "\U0001f30d"]
    found = {}
    for name in random.sample(["a", "B", "a.b", "a_b", "orders", "t" * 249], random.randint(0, 4)):
        count = random.choice([1, 2, 7, 40])
        replicas = random.choice([0, 0, 1, 3])
        by_partition = tuple(tuple(random.choices(racks, k=replicas)) for _ in range(count))
        found[name] = TopicInfo(random.randbytes(16), count, by_partition if replicas else ())
    return found


def test_hashes_of_topics_equal_those_of_kafka() -> None:
    random = Random(852)
    cases = [random_topics(random) for _ in range(300)]
    documents = [
        {
            "hashed": {
                name: {"id": uuid_to_text(topic.topic_id), "racks": topic.racks or [()] * topic.partition_count}
                for name, topic in topics.items()
            }
        }
        for topics in cases
    ]
    for topics, theirs in zip(cases, judge(documents), strict=True):
        hashes = {name: topic_hash(name, topic) for name, topic in topics.items()}
        assert [hashes, group_hash(hashes)] == theirs
