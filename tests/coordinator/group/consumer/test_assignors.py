"""The assignors: every partition has one owner, balance, few moves, the same result for the same input."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.coordinator.group.consumer.assignors.assignor import Assignment, Assignor, MemberSpec, TopicSpec
from gregor.coordinator.group.consumer.assignors.table import ASSIGNORS
from gregor.protocol.ids import Uuid
from gregor.protocol.turns import run_all

Members = dict[str, MemberSpec]
Topics = dict[Uuid, TopicSpec]

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
UNIFORM, RANGE = ASSIGNORS["uniform"], ASSIGNORS["range"]


def member(
    *topic_ids: Uuid, instance_id: str | None = None, rack: str | None = None, **assigned: set[int]
) -> MemberSpec:
    """A member that subscribes to topics; `a`, `b` and `c` are its partitions of the topics of that name."""
    by_topic = {{"a": A, "b": B, "c": C}[name]: frozenset(partitions) for name, partitions in assigned.items()}
    return MemberSpec(instance_id, rack, frozenset(topic_ids), by_topic)


def assign(assignor: Assignor, members: Mapping[str, MemberSpec], **counts: int) -> dict[str, dict[str, set[int]]]:
    """The assignment by member and the name of the topic."""
    topics = {{"a": A, "b": B, "c": C}[name]: TopicSpec(count) for name, count in counts.items()}
    names = {A: "a", B: "b", C: "c"}
    made = run_all(assignor(members, topics))
    return {
        member_id: {names[topic_id]: set(partitions) for topic_id, partitions in assignment.items()}
        for member_id, assignment in made.items()
    }


# --- examples


@pytest.mark.parametrize("assignor", [UNIFORM, RANGE])
def test_no_members_have_no_assignment(assignor: Assignor) -> None:
    assert assign(assignor, {}, a=3) == {}


@pytest.mark.parametrize("assignor", [UNIFORM, RANGE])
def test_members_without_subscription_or_with_a_topic_that_is_gone_have_nothing(assignor: Assignor) -> None:
    assert assign(assignor, {"m1": member(), "m2": member()}, a=3) == {"m1": {}, "m2": {}}
    assert assign(assignor, {"m1": member(C, c={1}), "m2": member(A)}, a=1) == {"m1": {}, "m2": {"a": {0}}}


def test_range_gives_the_same_numbers_of_topics_with_as_many_partitions() -> None:
    members = {"m2": member(A, B), "m1": member(A, B)}
    assert assign(RANGE, members, a=3, b=3) == {
        "m1": {"a": {0, 1}, "b": {0, 1}},
        "m2": {"a": {2}, "b": {2}},
    }


def test_range_orders_static_members_by_instance_id_and_before_others() -> None:
    members = {"m1": member(A), "m2": member(A, instance_id="z"), "m3": member(A, instance_id="y")}
    assert assign(RANGE, members, a=3) == {"m3": {"a": {0}}, "m2": {"a": {1}}, "m1": {"a": {2}}}


def test_range_counts_only_the_subscribers_of_a_topic() -> None:
    members = {"m1": member(A), "m2": member(A, B), "m3": member(B)}
    assert assign(RANGE, members, a=3, b=3) == {
        "m1": {"a": {0, 1}},
        "m2": {"a": {2}, "b": {0, 1}},
        "m3": {"b": {2}},
    }


def test_range_leaves_members_after_the_last_partition_empty() -> None:
    members = {f"m{number}": member(A) for number in range(4)}
    assert assign(RANGE, members, a=2) == {"m0": {"a": {0}}, "m1": {"a": {1}}, "m2": {}, "m3": {}}


def test_uniform_fills_members_topic_by_topic() -> None:
    members = {"m1": member(A, B), "m2": member(A, B)}
    assert assign(UNIFORM, members, a=2, b=2) == {"m1": {"a": {0, 1}}, "m2": {"b": {0, 1}}}


def test_uniform_moves_one_partition_to_a_new_member() -> None:
    members = {"m1": member(A, a={0, 1, 2}), "m2": member(A, a={3, 4}), "m3": member(A)}
    assert assign(UNIFORM, members, a=5) == {"m1": {"a": {0, 1}}, "m2": {"a": {3, 4}}, "m3": {"a": {2}}}


def test_uniform_leaves_the_larger_share_with_the_member_that_has_it() -> None:
    members = {"m1": member(A, a={0}), "m2": member(A, a={1, 2})}
    assert assign(UNIFORM, members, a=3) == {"m1": {"a": {0}}, "m2": {"a": {1, 2}}}


def test_uniform_does_not_regard_racks() -> None:
    racks = (("r1",), ("r2",))
    members = {"m1": member(A, rack="r2"), "m2": member(A, rack="r1")}
    assert run_all(UNIFORM(members, {A: TopicSpec(2, racks)})) == {"m1": {A: {0}}, "m2": {A: {1}}}


def test_uniform_balances_different_subscriptions() -> None:
    members = {"m1": member(A), "m2": member(A, B), "m3": member(A, B, C)}
    made = assign(UNIFORM, members, a=4, b=3, c=1)
    assert sorted(sum(map(len, topics.values())) for topics in made.values()) == [2, 3, 3]


def test_uniform_moves_partitions_of_members_with_more_to_members_with_fewer() -> None:
    members = {"m1": member(A, a=set(range(6))), "m2": member(A, B)}
    made = assign(UNIFORM, members, a=6, b=2)
    assert made == {"m1": {"a": {0, 1, 2, 3}}, "m2": {"a": {4, 5}, "b": {0, 1}}}


# --- properties


@st.composite
def groups(draw: st.DrawFn, homogeneous: bool = False) -> tuple[Members, Topics]:
    """Members that have any assignment without double owners, of topics and partitions that may be gone."""
    ids = [bytes([number]) * 16 for number in range(draw(st.integers(0, 5)))]
    topics = {topic_id: TopicSpec(draw(st.integers(0, 7))) for topic_id in ids if draw(st.integers(0, 9))}
    subscription = st.frozensets(st.sampled_from(ids)) if ids else st.just(frozenset[Uuid]())
    shared = draw(subscription)
    subscriptions = [shared if homogeneous else draw(subscription) for _ in range(draw(st.integers(0, 6)))]
    owners = [
        (topic_id, partition, draw(st.integers(-1, len(subscriptions) - 1)))
        for topic_id in ids
        for partition in range(draw(st.integers(0, 8)))
    ]
    members = {}
    for number, topic_ids in enumerate(subscriptions):
        assigned: dict[Uuid, set[int]] = {}
        for topic_id, partition, owner in owners:
            if owner == number:
                assigned.setdefault(topic_id, set()).add(partition)
        frozen = {topic_id: frozenset(partitions) for topic_id, partitions in assigned.items()}
        instance_id = draw(st.sampled_from([None, f"i{9 - number}"]))
        members[f"m{number}"] = MemberSpec(instance_id, draw(st.sampled_from([None, "r1"])), topic_ids, frozen)
    return members, topics


def subscribers(members: Members, topics: Topics) -> dict[Uuid, list[str]]:
    found = {topic_id: [name for name, spec in members.items() if topic_id in spec.topic_ids] for topic_id in topics}
    return {topic_id: names for topic_id, names in found.items() if names}


def check_owners(members: Members, topics: Topics, made: Mapping[str, Assignment]) -> None:
    """Every partition of a subscribed topic has one owner, which subscribes to it, and there are no others."""
    assert made.keys() == members.keys()
    owners = Counter(
        (topic_id, partition)
        for assignment in made.values()
        for topic_id, partitions in assignment.items()
        for partition in partitions
    )
    wanted = {
        (topic_id, partition)
        for topic_id in subscribers(members, topics)
        for partition in range(topics[topic_id].partition_count)
    }
    assert owners == dict.fromkeys(wanted, 1)
    for name, assignment in made.items():
        assert assignment.keys() <= members[name].topic_ids
        assert all(type(partitions) is frozenset and partitions for partitions in assignment.values())


def size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(max_examples=150)
@given(group=groups(), seed=st.integers(0, 100))
def test_every_partition_has_one_owner_and_order_does_not_count(
    name: str, group: tuple[Members, Topics], seed: int
) -> None:
    members, topics = group
    made = run_all(ASSIGNORS[name](members, topics))
    check_owners(members, topics, made)
    shuffled = list(members.items())
    Random(seed).shuffle(shuffled)
    assert run_all(ASSIGNORS[name](dict(shuffled), dict(reversed(topics.items())))) == made


@settings(max_examples=150)
@given(groups())
def test_ranges_are_contiguous_and_differ_by_one(group: tuple[Members, Topics]) -> None:
    members, topics = group
    made = run_all(RANGE(members, topics))
    for topic_id, names in subscribers(members, topics).items():
        shares = [made[name].get(topic_id, frozenset()) for name in names]
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        assert all(share == frozenset(range(min(share), max(share) + 1)) for share in shares if share)


@settings(max_examples=200)
@given(groups(homogeneous=True))
def test_equal_subscriptions_are_balanced_with_the_fewest_moves(group: tuple[Members, Topics]) -> None:
    members, topics = group
    made = run_all(UNIFORM(members, topics))
    check_owners(members, topics, made)
    if not members:
        return
    sizes = [size(assignment) for assignment in made.values()]
    assert max(sizes) - min(sizes) <= 1
    had = [
        sum(
            len([partition for partition in partitions if partition < topics[topic_id].partition_count])
            for topic_id, partitions in spec.assigned.items()
            if topic_id in spec.topic_ids and topic_id in topics
        )
        for spec in members.values()
    ]
    quota, extra = divmod(sum(sizes), len(sizes))
    most = sum(min(count, quota) for count in had) + min(extra, sum(count > quota for count in had))
    kept = sum(
        len(partitions & made[name].get(topic_id, frozenset()))
        for name, spec in members.items()
        for topic_id, partitions in spec.assigned.items()
    )
    assert kept == most


@settings(max_examples=300)
@given(groups())
def test_no_move_of_one_partition_improves_the_balance_and_the_result_is_kept(group: tuple[Members, Topics]) -> None:
    members, topics = group
    made = run_all(UNIFORM(members, topics))
    for topic_id, names in subscribers(members, topics).items():
        fewest = min(size(made[name]) for name in names)
        assert all(size(made[name]) <= fewest + 1 for name in names if topic_id in made[name])
    again = {name: spec._replace(assigned=made[name]) for name, spec in members.items()}
    assert run_all(UNIFORM(again, topics)) == made


@settings(max_examples=100)
@given(groups())
def test_an_assignment_of_two_owners_is_mended(group: tuple[Members, Topics]) -> None:
    members, topics = group
    everything = {topic_id: frozenset(range(9)) for topic_id in topics}
    members = {name: spec._replace(assigned=everything) for name, spec in members.items()}
    check_owners(members, topics, run_all(UNIFORM(members, topics)))


# --- time


def large_group(kind: str) -> tuple[Members, Topics]:
    """1,000 members and 10,000 partitions."""
    random = Random(kind)
    topic_count = {"one topic": 1, "many topics": 10_000}.get(kind, 100)
    ids = [random.randbytes(16) for _ in range(topic_count)]
    topics = {topic_id: TopicSpec(10_000 // topic_count) for topic_id in ids}
    everything = frozenset(ids)
    members = {}
    for number in range(1000):
        chosen = everything
        if kind == "two subscriptions":
            chosen = frozenset(ids[: len(ids) // 2]) if number % 2 else everything
        elif kind == "different subscriptions":
            chosen = frozenset(random.sample(ids, 20))
        members[f"member-{number}"] = MemberSpec(None, None, chosen, {})
    return members, topics


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["one topic", "100 topics", "many topics", "two subscriptions", "different subscriptions"]
)
@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_thousand_members_need_less_than_half_a_second(name: str, kind: str) -> None:
    members, topics = large_group(kind)
    used_s = []
    for _ in range(3):
        begun = time.thread_time()
        made = run_all(ASSIGNORS[name](members, topics))
        used_s.append(time.thread_time() - begun)
        # The next time a tenth of the members are gone and as many are new.
        members = {
            f"new-{member_id}" if number % 10 == 0 else member_id: spec._replace(
                assigned={} if number % 10 == 0 else made[member_id]
            )
            for number, (member_id, spec) in enumerate(members.items())
        }
    assert min(used_s) < 0.5
    check_owners(members, topics, run_all(ASSIGNORS[name](members, topics)))
