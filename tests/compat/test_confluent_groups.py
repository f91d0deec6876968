"""confluent-kafka (librdkafka): consumer groups, and their administration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.compat.confluent import Member, NewTopicFactory, Unique, as_sent, code_of, produce
from tests.compat.records import WAIT_S, assorted, until

pytestmark = [pytest.mark.compat, pytest.mark.slow]


@pytest.fixture
def join(bootstrap: str) -> Iterator[Callable[..., Member]]:
    """Makes members, and closes those that the test left."""
    members: list[Member] = []

    def make(group: str, topic: str, **config: Any) -> Member:
        members.append(Member(bootstrap, group, topic, **config))
        return members[-1]

    yield make
    for member in members:
        member.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_shares_the_partitions(
    bootstrap: str, new_topic: NewTopicFactory, unique: Unique, join: Callable[..., Member], strategy: str
) -> None:
    topic, group = new_topic(4), unique("group")
    config = {"partition.assignment.strategy": strategy}
    first = join(group, topic, **config)
    first.settled([], 4)
    second = join(group, topic, **config)
    first.settled([second], 2, 2)
    revoked = [numbers for name, numbers in first.events if name == "revoked"]
    if strategy == "range":
        assert revoked == [{0, 1, 2, 3}], "an eager member gives up everything"
    else:
        assert revoked == [second.owned], "a cooperative member gives up only what moves"
    sent = assorted(40)
    for partition in range(4):
        produce(bootstrap, topic, sent[partition::4], partition)

    def all_read() -> bool:
        first.poll()
        second.poll()
        return len(first.read) + len(second.read) >= 40

    until(all_read, "every record at one member")
    for member in (first, second):
        assert {message.partition() for message in member.read} == member.owned
    by_partition: dict[int, list[Message]] = {}
    for message in first.read + second.read:
        by_partition.setdefault(message.partition() or 0, []).append(message)
    for partition in range(4):
        assert as_sent(by_partition[partition]) == sent[partition::4]
    second.close()
    # Well within the session timeout: it has left, it did not expire.
    first.settled([], 4)
    assert first.errors == [] and second.errors == []


def test_a_group_goes_on_where_it_committed(
    bootstrap: str, new_topic: NewTopicFactory, unique: Unique, admin: AdminClient, join: Callable[..., Member]
) -> None:
    topic, group, sent = new_topic(), unique("group"), assorted(10)
    produce(bootstrap, topic, sent)
    first = join(group, topic)
    first.read_until(4)
    commit = TopicPartition(topic, 0, 4, "so far")
    [done] = first.consumer.commit(offsets=[commit], asynchronous=False)
    assert done.error is None
    first.close()
    second = join(group, topic)
    second.read_until(6)
    assert as_sent(second.read) == sent[4:]
    [found] = second.consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
    assert (found.offset, found.metadata) == (4, "so far")
    asked = [ConsumerGroupTopicPartitions(group)]
    answer = admin.list_consumer_group_offsets(asked)[group].result(WAIT_S)
    assert [(entry.topic, entry.partition, entry.offset) for entry in answer.topic_partitions] == [(topic, 0, 4)]
    # Asynchronous commits, and those at the close, arrive too.
    second.consumer.commit(message=second.read[-1], asynchronous=True)
    second.close()
    third = join(group, topic)
    third.settled([], 1)
    [found] = third.consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
    assert found.offset == 10


def test_auto_commit_at_the_close(
    bootstrap: str, new_topic: NewTopicFactory, unique: Unique, join: Callable[..., Member]
) -> None:
    topic, group, sent = new_topic(), unique("group"), assorted(7)
    produce(bootstrap, topic, sent)
    first = join(group, topic, **{"enable.auto.commit": True})
    first.read_until(7)
    first.close()
    second = join(group, topic)
    second.settled([], 1)
    [found] = second.consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
    assert found.offset == 7


def test_a_static_member_comes_back_without_a_rebalance(
    new_topic: NewTopicFactory, unique: Unique, admin: AdminClient, join: Callable[..., Member]
) -> None:
    topic, group = new_topic(4), unique("static")
    first = join(group, topic, **{"group.instance.id": "one"})
    first.settled([], 4)
    second = join(group, topic, **{"group.instance.id": "two"})
    first.settled([second], 2, 2)
    owned, seen = second.owned.copy(), len(first.events)
    old_id = second.consumer.memberid()
    second.close()
    back = join(group, topic, **{"group.instance.id": "two"})
    first.settled([back], 2, 2)
    assert back.owned == owned and back.consumer.memberid() != old_id
    assert len(first.events) == seen, "the other member noticed nothing"
    described = admin.describe_consumer_groups([group])[group].result(WAIT_S)
    assert sorted(member.group_instance_id for member in described.members) == ["one", "two"]


def test_a_static_member_is_fenced_by_its_double(
    new_topic: NewTopicFactory, unique: Unique, join: Callable[..., Member]
) -> None:
    topic, group = new_topic(2), unique("fence")
    old = join(group, topic, **{"group.instance.id": "one"})
    old.settled([], 2)
    new = join(group, topic, **{"group.instance.id": "one"})

    def fenced() -> bool:
        new.poll()
        old.poll()
        return len(new.owned) == 2 and bool(old.errors)

    until(fenced, "the fencing of the first")
    assert old.errors[0].code() == KafkaError._FATAL or old.errors[0].fatal()
    assert "instance" in old.errors[0].str().lower() or "fenced" in old.errors[0].str().lower()


def test_more_partitions_reach_the_group(
    new_topic: NewTopicFactory, unique: Unique, admin: AdminClient, join: Callable[..., Member]
) -> None:
    topic = new_topic(1)
    member = join(unique("grow"), topic, **{"topic.metadata.refresh.interval.ms": 200})
    member.settled([], 1)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(WAIT_S)
    member.settled([], 3)


def test_groups_are_listed_described_and_deleted(
    new_topic: NewTopicFactory, unique: Unique, admin: AdminClient, join: Callable[..., Member]
) -> None:
    topic, group = new_topic(2), unique("listed")
    member = join(group, topic, **{"client.id": "the-client"})
    member.settled([], 2)
    member.consumer.commit(offsets=[TopicPartition(topic, 1, 0)], asynchronous=False)

    def state(states: set[ConsumerGroupState]) -> ConsumerGroupState | None:
        listed = admin.list_consumer_groups(states=states).result(WAIT_S)
        assert listed.errors == []
        return next((entry.state for entry in listed.valid if entry.group_id == group), None)

    assert state(set()) == ConsumerGroupState.STABLE
    assert state({ConsumerGroupState.STABLE}) == ConsumerGroupState.STABLE
    assert state({ConsumerGroupState.EMPTY}) is None
    described = admin.describe_consumer_groups([group])[group].result(WAIT_S)
    assert described.state == ConsumerGroupState.STABLE and not described.is_simple_consumer_group
    assert described.partition_assignor == "range"
    [found] = described.members
    assert found.member_id == member.consumer.memberid()
    assert (found.client_id, found.host) == ("the-client", "/127.0.0.1")
    assert sorted(entry.partition for entry in found.assignment.topic_partitions) == [0, 1]
    assert code_of(admin.delete_consumer_groups([group])[group]) == KafkaError.NON_EMPTY_GROUP
    member.close()
    assert state({ConsumerGroupState.EMPTY}) == ConsumerGroupState.EMPTY
    assert code_of(admin.delete_consumer_groups([group])[group]) is None
    assert state(set()) is None
    assert code_of(admin.delete_consumer_groups([group])[group]) == KafkaError.GROUP_ID_NOT_FOUND
    described = admin.describe_consumer_groups([group])[group]
    assert code_of(described) in (None, KafkaError.GROUP_ID_NOT_FOUND)


def test_group_offsets_are_altered_from_outside(
    new_topic: NewTopicFactory, unique: Unique, admin: AdminClient, join: Callable[..., Member]
) -> None:
    topic, group = new_topic(2), unique("reset")
    wanted = [TopicPartition(topic, 0, 5), TopicPartition(topic, 1, 6)]
    request = ConsumerGroupTopicPartitions(group, wanted)
    altered = admin.alter_consumer_group_offsets([request])[group].result(WAIT_S)
    assert [entry.error for entry in altered.topic_partitions] == [None, None]
    member = join(group, topic)
    member.settled([], 2)
    found = member.consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=WAIT_S)
    assert [entry.offset for entry in found] == [5, 6]
    refused = admin.alter_consumer_group_offsets([request])[group].result(WAIT_S)
    assert [entry.error.code() for entry in refused.topic_partitions] == [KafkaError.UNKNOWN_MEMBER_ID] * 2
