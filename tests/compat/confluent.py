"""Shared functions of the tests of confluent-kafka: sending, reading, a group's member, words for errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compat.records import WAIT_S, Sent, until

_PASSING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
)

NewTopicFactory = Callable[..., str]
Unique = Callable[[str], str]


def produce(bootstrap: str, topic: str, records: Sequence[Sent], partition: int = 0, **config: Any) -> list[Message]:
    """Sends the records and returns the reports, all of them successes, in the order of their sending."""
    reports: list[Message] = []

    def report(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        reports.append(message)

    # A batch of several records, so that the codecs have something to do.
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, **config})
    for sent in records:
        producer.produce(
            topic,
            sent.value,
            sent.key,
            partition=partition,
            timestamp=sent.timestamp_ms,
            headers=list(sent.headers),
            on_delivery=report,
        )
    assert producer.flush(WAIT_S) == 0
    assert len(reports) == len(records)
    return reports


def reading(bootstrap: str, **config: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            # The first empty fetch reports the end: not half a second later.
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "auto.offset.reset": "error",
            **config,
        }
    )


def read_to_end(consumer: Consumer, topic: str, offset: int, partition: int = 0) -> list[Message]:
    """All records of a partition from `offset`, which may be one of librdkafka's special ones."""
    consumer.assign([TopicPartition(topic, partition, offset)])
    return take_to_end(consumer)


def take_to_end(consumer: Consumer) -> list[Message]:
    found: list[Message] = []
    while True:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"nothing came for {WAIT_S:.0f} s, not even the end"
        error = message.error()
        if error is None:
            found.append(message)
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            return found


def as_sent(messages: Sequence[Message]) -> list[Sent]:
    return [Sent(m.key(), m.value(), cast("Any", m.headers()) or [], m.timestamp()[1]) for m in messages]


def error_of(message: Message | None) -> KafkaError:
    assert message is not None, "nothing came"
    error = message.error()
    assert error is not None, "a record, where an error was due"
    return error


def commit_offsets(consumer: Consumer, offsets: list[TopicPartition]) -> None:
    """Commit these offsets, or those of all that was read, once the coordinator accepts them.

    librdkafka does not repeat a commit while the coordinator is created, loads or moves, or while the group is in a
    rebalance.
    """
    chosen: dict[str, Any] = {"offsets": offsets} if offsets else {}

    def accepted() -> bool:
        try:
            done: list[TopicPartition] = consumer.commit(**chosen, asynchronous=False) or []
            errors = [one.error for one in done if one.error is not None]
        except KafkaException as failure:
            errors = [failure.args[0]]
        assert all(error.code() in _PASSING for error in errors), errors
        return not errors

    until(accepted, f"a commit of {offsets or 'all that was read'}")


class Member:
    """One consumer of a group: the partitions it owns, its rebalance events, the records it read."""

    def __init__(self, bootstrap: str, group: str, topic: str, **config: Any) -> None:
        self.owned: set[int] = set()
        self.events: list[tuple[str, set[int]]] = []
        self.read: list[Message] = []
        self.errors: list[KafkaError] = []
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **config,
        }
        if settings.get("group.protocol") != "consumer":  # whose intervals are the broker's
            settings.setdefault("heartbeat.interval.ms", 300)
        self.consumer = Consumer(settings)
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = {entry.partition for entry in partitions}
        self.owned |= numbers
        self.events.append(("assigned", numbers))

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = {entry.partition for entry in partitions}
        self.owned -= numbers
        self.events.append(("revoked", numbers))

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None and message.error() is None:
            self.read.append(message)
        elif message is not None:
            self.errors.append(error_of(message))

    def read_until(self, count: int) -> None:
        def reached() -> bool:
            self.poll()
            return len(self.read) >= count

        until(reached, f"{count} records, now {len(self.read)}")

    def settled(self, others: Sequence[Member], *counts: int) -> None:
        """Polls this member and the others until they own that many partitions, no two the same."""
        members = [self, *others]

        def reached() -> bool:
            for member in members:
                member.poll()
            owned = [number for member in members for number in member.owned]
            return [len(member.owned) for member in members] == list(counts) and len(owned) == len(set(owned))

        until(reached, f"a division into {counts}, now {[member.owned for member in members]}")

    def commit(self, *offsets: TopicPartition) -> None:
        """Commit these offsets, or those of all that was read."""
        commit_offsets(self.consumer, list(offsets))

    def close(self) -> None:
        self.consumer.close()


def described_topics(admin: AdminClient, topics: list[str]) -> list[Any]:
    """One description or one error for each topic."""

    class Failed:
        def __init__(self, error: KafkaError) -> None:
            self.error = error

    found: list[Any] = []
    for future in admin.describe_topics(TopicCollection(topics)).values():
        try:
            found.append(future.result(WAIT_S))
            found[-1].error = None
        except KafkaException as failure:
            found.append(Failed(failure.args[0]))
    return found


def code_of(future: Future[Any]) -> int | None:
    """The error code that an administrative call ended with; None for success."""
    try:
        future.result(WAIT_S)
    except KafkaException as failure:
        code: int = failure.args[0].code()
        return code
    return None
