"""Two brokers, a topic of four partitions, two groups: the figure that introductions to Apache Kafka show.

Group A has two members with two partitions each, group B four with one each; a fifth of B has none until another goes.
"""

from __future__ import annotations

import pathlib
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.records import WAIT_S
from tests.support.gregor_cluster import GregorCluster, until

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

TOPIC = "figure"
LED_BY = {0: 0, 1: 1, 2: 1, 3: 0}
"""P0 and P3 on the first server, P1 and P2 on the second."""
RECORDS = 200


class Group:
    """A group whose members poll in turn in this thread; `seen` counts the values that all of them received."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.seen: Counter[bytes] = Counter()
        self.members: list[Consumer] = []
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }

    def join(self) -> None:
        member = Consumer(self._settings)
        member.subscribe([TOPIC])
        self.members.append(member)

    def leave(self, member: Consumer) -> None:
        self.members.remove(member)
        member.close()

    def assigned(self) -> list[list[int]]:
        """The partitions of each member, after a turn of all of them."""
        for member in self.members:
            for message in member.consume(50, 0.05):
                value = message.value()
                if message.error() is None and value is not None:
                    self.seen[value] += 1
        return [sorted(one.partition for one in member.assignment()) for member in self.members]

    def until_shared(self, shares: list[int]) -> None:
        """Wait until the members own all partitions, in these numbers."""

        def shared() -> bool:
            found = self.assigned()
            together = sorted(index for share in found for index in share)
            return together == sorted(LED_BY) and sorted(map(len, found)) == sorted(shares)

        until(shared, f"shares of {shares}")

    def close(self) -> None:
        for member in self.members:
            member.close()


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[GregorCluster]:
    with GregorCluster(tmp_path, 2, {"offsets.topic.replication.factor": "2"}) as cluster:
        yield cluster


def test_two_groups_share_four_partitions_of_two_brokers(cluster: GregorCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    topic = NewTopic(TOPIC, len(LED_BY), replica_assignment=[[leader] for leader in LED_BY.values()])
    admin.create_topics([topic])[TOPIC].result(WAIT_S)
    assert {index: cluster.until_led(TOPIC, index) for index in LED_BY} == LED_BY
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    sent = {b"%d" % number for number in range(RECORDS)}
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d" % number, partition=number % len(LED_BY))
    assert producer.flush(WAIT_S) == 0

    groups = [Group(cluster.bootstrap, name) for name in ("A", "B")]
    first, second = groups
    try:
        for group, members in ((first, 2), (second, 4)):
            for _ in range(members):
                group.join()
        first.until_shared([2, 2])
        second.until_shared([1, 1, 1, 1])
        for group in groups:
            until(lambda group=group: bool(group.assigned()) and set(group.seen) == sent, "every record to each group")  # type: ignore[misc]

        second.join()
        second.until_shared([0, 1, 1, 1, 1])
        idle = next(member for member in second.members if not member.assignment())
        busy = next(member for member in second.members if member.assignment())
        second.leave(busy)
        second.until_shared([1, 1, 1, 1])
        assert idle.assignment(), "the surplus member takes over"
        first.until_shared([2, 2])
    finally:
        for group in groups:
            group.close()
