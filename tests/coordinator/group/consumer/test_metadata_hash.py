"""The metadata hash: it changes with each fact about the topics, and with nothing else."""

from __future__ import annotations

import pytest

from gregor.coordinator.group.consumer.metadata_hash import NO_HASH, group_hash, topic_hash
from gregor.coordinator.ports import TopicInfo

ID = bytes(range(16))
RACKS = (("r1", "r2"), ("r2",))
TOPIC = TopicInfo(ID, 2, RACKS)
HASH_OF_ORDERS = 3695872476892338145
HASH_OF_GROUP = 1559002273794826001


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("returns", TOPIC),
        ("orders", TopicInfo(bytes(16), 2, RACKS)),
        ("orders", TopicInfo(ID, 3, RACKS)),
        ("orders", TopicInfo(ID, 2)),
        ("orders", TopicInfo(ID, 2, tuple(reversed(RACKS)))),
        ("orders", TopicInfo(ID, 2, (("r1",), ("r2",)))),
        ("orders", TopicInfo(ID, 2, (("r1", "r2"), ()))),
        ("orders", TopicInfo(ID, 2, (("r1r2",), ("r2",)))),
        ("orders", TopicInfo(ID, 2, (("r1", "r2", "r2"), ("r2",)))),
    ],
)
def test_every_fact_counts(name: str, topic: TopicInfo) -> None:
    assert topic_hash(name, topic) != topic_hash("orders", TOPIC)


def test_a_hash_is_the_same_in_every_process() -> None:
    """A coordinator compares it with one that another process recorded, perhaps Apache Kafka."""
    assert topic_hash("orders", TOPIC) == HASH_OF_ORDERS
    assert topic_hash("orders", TopicInfo(ID, 2, (("r2", "r1"), ("r2",)))) == HASH_OF_ORDERS


def test_the_hash_of_a_group_does_not_depend_on_the_order_of_its_topics() -> None:
    hashes = {"orders": 1, "returns": -2}
    assert group_hash(hashes) == group_hash({"returns": -2, "orders": 1}) == HASH_OF_GROUP
    assert group_hash({"orders": -2, "returns": 1}) != HASH_OF_GROUP
    assert group_hash({"orders": 1}) != HASH_OF_GROUP


def test_no_topics_have_no_hash() -> None:
    assert group_hash({}) == NO_HASH == 0
    assert group_hash({"orders": 0}) != NO_HASH
