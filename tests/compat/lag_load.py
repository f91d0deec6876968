"""Four groups that are behind by known numbers of records, in partitions with markers, an open transaction and deleted
records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.confluent import commit_offsets
from tests.compat.records import until

WAIT_S = 120.0
TOPIC = "lagging"
ENDS = {0: 100, 1: 26, 2: 16, 3: 24}
"""High watermarks: plain records; 10, five of a transaction, its marker, 10; 10, five aborted ones, the marker; and 20,
eight of them deleted, with four of a transaction that stays open."""
DELETED_BEFORE = 8
COMMITTED: Mapping[str, Mapping[int, int]] = {
    "reader": {0: 100, 1: 26, 2: 16, 3: 20},  # a member that has read to the end, with isolation.level=read_committed
    "behind": {0: 40, 1: 12, 2: 0, 3: 2},  # no members; between the records of a transaction, and in deleted ones
    "copier": {0: 90, 1: 15, 2: 7},  # offsets of a transaction, one of them at a marker, and another without one
    "newer": {0: 1, 2: 15, 3: 24},  # group.protocol=consumer
}
Lags = dict[tuple[str, str, int], int]


def expected() -> Lags:
    """Return the lag by group, topic and partition."""
    return {
        (group, TOPIC, index): ENDS[index] - offset
        for group, offsets in COMMITTED.items()
        for index, offset in offsets.items()
    }


class LaggingGroups:
    """A context manager: the members and the open transaction stay until its end."""

    def __init__(self, bootstrap: str, replicas: int) -> None:
        self._bootstrap: dict[str, Any] = {"bootstrap.servers": bootstrap}
        self._replicas = replicas
        self._stack = ExitStack()
        self._open: Producer | None = None

    def __enter__(self) -> LaggingGroups:
        admin = AdminClient(self._bootstrap)
        for made in admin.create_topics([NewTopic(TOPIC, len(ENDS), self._replicas)]).values():
            made.result(WAIT_S)
        plain = Producer(self._bootstrap)
        for index, before in {0: 100, 1: 10, 2: 10, 3: 20}.items():
            write(plain, index, before)
        self._transaction("commits", 1, 5).commit_transaction(WAIT_S)
        self._transaction("aborts", 2, 5).abort_transaction(WAIT_S)
        write(plain, 1, 10)
        for done in admin.delete_records([TopicPartition(TOPIC, 3, DELETED_BEFORE)]).values():
            done.result(WAIT_S)
        self._open = self._transaction("stays-open", 3, 4)
        self._commit("behind")
        self._commit("newer", member=True, protocol="consumer")
        self._commit("reader", member=True)
        self._commit_in_transaction("copier", [0, 1])
        self._commit("copier", [2])  # after the marker: kminion waits for a record that is the last of its partition
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()
        if self._open is not None:
            self._open.abort_transaction(WAIT_S)

    def _transaction(self, name: str, index: int, count: int) -> Producer:
        """Begin a transaction, and write records into it."""
        producer = Producer({**self._bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        write(producer, index, count)
        return producer

    def _commit(
        self, group: str, indexes: Iterable[int] = ENDS, *, member: bool = False, protocol: str = "classic"
    ) -> None:
        settings = {"group.id": group, "group.protocol": protocol, "enable.auto.commit": False}
        consumer = Consumer({**self._bootstrap, **settings})
        self._stack.callback(consumer.close)
        if member:
            consumer.subscribe([TOPIC])

            def assigned() -> bool:
                consumer.poll(0.1)
                return len(consumer.assignment()) == len(ENDS)

            until(assigned, f"the member of {group} has all partitions")
        commit_offsets(consumer, positions(group, indexes))

    def _commit_in_transaction(self, group: str, indexes: Iterable[int]) -> None:
        consumer = Consumer({**self._bootstrap, "group.id": group})
        self._stack.callback(consumer.close)
        producer = Producer({**self._bootstrap, "transactional.id": group})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.send_offsets_to_transaction(positions(group, indexes), consumer.consumer_group_metadata(), WAIT_S)
        producer.commit_transaction(WAIT_S)


def positions(group: str, indexes: Iterable[int]) -> list[TopicPartition]:
    offsets = COMMITTED[group]
    return [TopicPartition(TOPIC, index, offsets[index]) for index in indexes if index in offsets]


def write(producer: Producer, index: int, count: int) -> None:
    for number in range(count):
        producer.produce(TOPIC, b"%d" % number, partition=index)
    assert producer.flush(WAIT_S) == 0
