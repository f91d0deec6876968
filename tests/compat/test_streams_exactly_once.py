"""Kafka Streams 4.3.1 with exactly_once_v2: every count of a word count is committed once, whatever is killed."""

from __future__ import annotations

import pathlib
import random
import time
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.confluent import read_to_end, reading
from tests.compat.records import until
from tests.compat.test_streams import WAIT_S, application, classes, produce
from tests.compat.transaction_version import NEW, OLD, finalise_new_protocol, used_by
from tests.support.gregor_cluster import REPLICATED, GregorCluster

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow, pytest.mark.by_day(1)]

__all__ = ["classes"]

GUARANTEE = "exactly_once_v2"
WORDS = ("to", "be", "or", "not", "that", "is", "the", "question")
PARTITIONS = 2
ROUNDS = 3
LINES = 40


class Text:
    """Lines of random words, and how often each word is in them."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self.expected: Counter[str] = Counter()
        self._bootstrap = bootstrap
        self._topic = topic
        self._dice = random.Random(seed)

    def write(self, count: int = LINES) -> None:
        lines = [self._dice.choices(WORDS, k=5) for _ in range(count)]
        for line in lines:
            self.expected.update(line)
        produce(self._bootstrap, self._topic, [" ".join(line) for line in lines])


def committed_counts(bootstrap: str, topic: str) -> dict[str, list[int]]:
    """Return the counts of each word in the order in which they are in the output, with read_committed."""
    consumer = reading(bootstrap, **{"isolation.level": "read_committed"})
    found: dict[str, list[int]] = {}
    try:
        for partition in range(PARTITIONS):
            for message in read_to_end(consumer, topic, 0, partition):
                key, value = message.key(), message.value()
                assert key is not None and value is not None
                found.setdefault(key.decode(), []).append(int(value))
    finally:
        consumer.close()
    return found


def until_counted(bootstrap: str, topic: str, expected: Counter[str]) -> None:
    """Wait for the last counts; each word's counts are then 1, 2, 3, … without one missing or twice."""

    def counted() -> bool:
        found = committed_counts(bootstrap, topic)
        return {word: counts[-1] for word, counts in found.items()} == expected

    until(counted, "the last count of each word", 2 * WAIT_S)
    for word, counts in committed_counts(bootstrap, topic).items():
        assert counts == list(range(1, expected[word] + 1)), word


def create(bootstrap: str, replicas: int, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, replicas) for name in topics]).values():
        future.result(WAIT_S)


def test_killed_application_counts_each_word_once(
    bootstrap: str, unique: Callable[[str], str], classes: str, tmp_path: pathlib.Path
) -> None:
    """It is killed while it counts; the last time its state folder is lost, too."""
    source, target, name = unique("lines"), unique("counts"), unique("exactly")
    create(bootstrap, 1, source, target)
    text = Text(bootstrap, source, 1)
    for number in range(ROUNDS):
        state = tmp_path / ("state" if number < ROUNDS - 1 else "lost")
        with application(classes, bootstrap, name, source, target, str(state), GUARANTEE) as running:
            running.wait_for("RUNNING")
            text.write()
            if number < ROUNDS - 1:
                # Some are counted, of some the transaction is open.
                until(lambda: read_any(bootstrap, target), "a first count", WAIT_S)
                time.sleep(0.1 * number)
                continue
            until_counted(bootstrap, target, text.expected)
            running.stop()


def read_any(bootstrap: str, topic: str) -> bool:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "log_level": 0})
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, part), WAIT_S)[1] for part in range(PARTITIONS)]
    finally:
        consumer.close()
    return any(ends)


def test_killed_brokers_count_each_word_once(classes: str, tmp_path: pathlib.Path) -> None:
    """First with the old transactional protocol, then with the new one."""
    victims = {OLD: ("counts",), NEW: ("__transaction_state", "counts")}
    with GregorCluster(tmp_path / "cluster", overrides=REPLICATED) as cluster:
        bootstrap = cluster.bootstrap
        create(bootstrap, 3, "lines", "counts")
        text = Text(bootstrap, "lines", 2)
        for level, topics in victims.items():
            if level == NEW:
                finalise_new_protocol(bootstrap)
            before = used_by(bootstrap) if level == NEW else {}
            state = str(tmp_path / "state")
            with application(classes, bootstrap, "words", "lines", "counts", state, GUARANTEE) as running:
                running.wait_for("RUNNING")
                text.write()
                until_counted(bootstrap, "counts", text.expected)
                for topic in topics:
                    kill_leader(cluster, topic, text)
                running.stop()
            after = used_by(bootstrap)
            assert set().union(*after.values()) - set().union(*before.values()) == {level}, (before, after)


def kill_leader(cluster: GregorCluster, topic: str, text: Text) -> None:
    """Kill the leader of a partition, or the coordinator that it is, and wait for the counts of what is written."""
    leader = cluster.until_led(topic)
    text.write()
    cluster.kill(leader)
    text.write()
    cluster.until_led(topic, not_by=leader)
    cluster.start(leader)
    until_counted(cluster.bootstrap, "counts", text.expected)
    for internal in ("counts", "__consumer_offsets", "__transaction_state"):
        cluster.until_isr(internal, [0, 1, 2])
