"""confluent-kafka (librdkafka): the client of the command line, and of most languages but Java."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.compat.records import CODECS, WAIT_S, Sent, assorted, until

pytestmark = [pytest.mark.compat, pytest.mark.slow]

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
            # The end is told with the first empty fetch: not half a second later.
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


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[Consumer]:
    made = reading(bootstrap)
    yield made
    made.close()


# ---- producing and consuming ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_sent(bootstrap: str, new_topic: NewTopicFactory, consumer: Consumer, codec: str) -> None:
    topic, sent = new_topic(), assorted()
    config = {"compression.type": codec}
    reports = produce(bootstrap, topic, sent, 0, **config)
    assert [report.offset() for report in reports] == list(range(len(sent)))
    found = read_to_end(consumer, topic, OFFSET_BEGINNING)
    assert as_sent(found) == sent
    assert [message.offset() for message in found] == list(range(len(sent)))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(bootstrap: str, new_topic: NewTopicFactory, consumer: Consumer, acks: str) -> None:
    topic, sent = new_topic(), assorted(16)
    reports = produce(bootstrap, topic, sent, acks=acks)
    if acks != "0":
        assert [report.offset() for report in reports] == list(range(16))
    found: list[Message] = []
    # Without acknowledgements the end may be seen before the last record arrived.
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def all_read() -> bool:
        found.extend(take_to_end(consumer))
        return len(found) >= 16

    until(all_read, "all records")
    assert as_sent(found) == sent


def test_an_idempotent_producer_keeps_the_order(bootstrap: str, new_topic: NewTopicFactory, consumer: Consumer) -> None:
    topic = new_topic(3)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for number in range(3000):
        producer.produce(topic, b"%d" % number, partition=number % 3)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    for partition in range(3):
        found = read_to_end(consumer, topic, OFFSET_BEGINNING, partition)
        assert [message.value() for message in found] == [b"%d" % number for number in range(partition, 3000, 3)]
        assert [message.offset() for message in found] == list(range(1000))


def test_reading_from_any_place(bootstrap: str, new_topic: NewTopicFactory, consumer: Consumer) -> None:
    topic, sent = new_topic(), assorted(30)
    produce(bootstrap, topic, sent)
    assert as_sent(read_to_end(consumer, topic, 17)) == sent[17:]
    assert read_to_end(consumer, topic, OFFSET_END) == []
    late = Sent(b"late", b"late", [], sent[-1].timestamp_ms + 10)
    produce(bootstrap, topic, [late])
    assert as_sent(take_to_end(consumer)) == [late]
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S) == (0, 31)

    def offset_at(timestamp_ms: int) -> int:
        [found] = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=WAIT_S)
        return int(found.offset)

    assert offset_at(sent[12].timestamp_ms) == 12
    assert offset_at(sent[12].timestamp_ms - 9) == 12
    assert offset_at(sent[12].timestamp_ms + 1) == 13
    assert offset_at(0) == 0
    assert offset_at(late.timestamp_ms + 1) == OFFSET_END
    assert as_sent(read_to_end(consumer, topic, offset_at(sent[25].timestamp_ms))) == [*sent[25:], late]


def test_an_offset_out_of_range_is_said(bootstrap: str, new_topic: NewTopicFactory, consumer: Consumer) -> None:
    topic = new_topic()
    produce(bootstrap, topic, assorted(3))
    consumer.assign([TopicPartition(topic, 0, 1000)])
    error = error_of(consumer.poll(WAIT_S))
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    assert "out of range" in error.str().lower()


def test_a_waiting_consumer_gets_a_record_at_once(
    bootstrap: str, new_topic: NewTopicFactory, consumer: Consumer
) -> None:
    topic = new_topic()
    slow = reading(bootstrap, **{"fetch.wait.max.ms": 20_000, "enable.partition.eof": False})
    try:
        produce(bootstrap, topic, assorted(1))
        slow.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert slow.poll(WAIT_S) is not None  # the next fetch waits at the end
        sent = assorted(2)
        start = time.monotonic()
        produce(bootstrap, topic, sent[1:])
        message = slow.poll(WAIT_S)
        assert message is not None and message.value() == sent[1].value
        assert time.monotonic() - start < 5
    finally:
        slow.close()


def test_a_producer_creates_a_topic(bootstrap: str, unique: Unique, admin: AdminClient, consumer: Consumer) -> None:
    topic, sent = unique("auto"), assorted(3)
    produce(bootstrap, topic, sent)
    assert as_sent(read_to_end(consumer, topic, OFFSET_BEGINNING)) == sent
    [described] = described_topics(admin, [topic])
    assert described.error is None and len(described.partitions) == 1


def test_a_message_above_the_limit_is_refused(bootstrap: str, new_topic: NewTopicFactory, consumer: Consumer) -> None:
    topic = new_topic(configs={"max.message.bytes": "10000"})
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for size in (9000, 20_000, 9001):
        producer.produce(topic, b"x" * size, partition=0, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(WAIT_S) == 0
    assert [error and error.code() for error in errors] == [None, KafkaError.MSG_SIZE_TOO_LARGE, None]
    sizes = [len(message.value() or b"") for message in read_to_end(consumer, topic, OFFSET_BEGINNING)]
    assert sizes == [9000, 9001]


def test_a_topic_that_does_not_exist(bootstrap: str, unique: Unique) -> None:
    topic = unique("missing")
    consumer = reading(bootstrap, **{"allow.auto.create.topics": False})
    try:
        consumer.subscribe([topic])
        assert error_of(consumer.poll(WAIT_S)).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        with pytest.raises(KafkaException) as failure:
            consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S)
        assert failure.value.args[0].code() == KafkaError._UNKNOWN_PARTITION
    finally:
        consumer.close()


@pytest.mark.usefixtures("without_transactions")
def test_a_transactional_producer_is_refused_for_good(bootstrap: str, unique: Unique) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique("txn")})
    start = time.monotonic()
    with pytest.raises(KafkaException) as failure:
        producer.init_transactions(WAIT_S)
    error = failure.value.args[0]
    assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert error.fatal() and not error.retriable()
    assert time.monotonic() - start < 10


def test_read_committed_sees_everything_where_nothing_is_transactional(
    bootstrap: str, new_topic: NewTopicFactory
) -> None:
    topic, sent = new_topic(), assorted(5)
    produce(bootstrap, topic, sent)
    consumer = reading(bootstrap, **{"isolation.level": "read_committed"})
    try:
        assert as_sent(read_to_end(consumer, topic, OFFSET_BEGINNING)) == sent
    finally:
        consumer.close()


# ---- groups --------------------------------------------------------------------------------------------------------


class Member:
    """One consumer of a group: what it owns, what it was told, what it read."""

    def __init__(self, bootstrap: str, group: str, topic: str, **config: Any) -> None:
        self.owned: set[int] = set()
        self.events: list[tuple[str, set[int]]] = []
        self.read: list[Message] = []
        self.errors: list[KafkaError] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 300,
                **config,
            }
        )
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

    def close(self) -> None:
        self.consumer.close()


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


# ---- administration ------------------------------------------------------------------------------------------------


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


def test_topics_are_created_described_grown_and_deleted(admin: AdminClient, unique: Unique) -> None:
    topic = unique("admin")
    new = NewTopic(topic, 2, 1, config={"retention.ms": "3600000"})
    assert code_of(admin.create_topics([new], validate_only=True)[topic]) is None
    assert topic not in admin.list_topics(timeout=WAIT_S).topics
    assert code_of(admin.create_topics([new])[topic]) is None
    [described] = described_topics(admin, [topic])
    assert described.name == topic and not described.is_internal
    assert [entry.id for entry in described.partitions] == [0, 1]
    [node] = described.partitions[0].replicas
    assert described.partitions[0].leader.id == node.id == described.partitions[0].isr[0].id
    assert f"127.0.0.1:{node.port}" == f"{node.host}:{node.port}"
    assert code_of(admin.create_topics([new])[topic]) == KafkaError.TOPIC_ALREADY_EXISTS
    assert code_of(admin.create_partitions([NewPartitions(topic, 5)])[topic]) is None
    assert len(described_topics(admin, [topic])[0].partitions) == 5
    assert code_of(admin.create_partitions([NewPartitions(topic, 5)])[topic]) == KafkaError.INVALID_PARTITIONS
    assert code_of(admin.create_partitions([NewPartitions(topic, 2)])[topic]) == KafkaError.INVALID_PARTITIONS
    assert code_of(admin.delete_topics([topic])[topic]) is None
    assert described_topics(admin, [topic])[0].error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert code_of(admin.delete_topics([topic])[topic]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    # The name is free again, and the new topic is another one.
    assert code_of(admin.create_topics([new])[topic]) is None
    found: list[Any] = []

    def described_again() -> bool:
        found[:] = described_topics(admin, [topic])
        return found[0].error is None

    until(described_again, "the new topic in the metadata")
    assert str(found[0].topic_id) != str(described.topic_id)
    assert len(found[0].partitions) == 2


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("not a name", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("too-many-replicas", 1, 9), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("bad-config", 1, 1, config={"retention.mss": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("bad-value", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("bad-replica", 1, replica_assignment=[[77]]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=["name", "long-name", "replicas", "config-key", "config-value", "assignment"],
)
def test_a_bad_topic_is_refused(admin: AdminClient, topic: NewTopic, code: int) -> None:
    assert code_of(admin.create_topics([topic])[topic.topic]) == code
    assert topic.topic not in admin.list_topics(timeout=WAIT_S).topics


def test_topic_configs_change_by_all_four_operations(admin: AdminClient, new_topic: NewTopicFactory) -> None:
    topic = new_topic(configs={"retention.ms": "1000000"})
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def alter(*entries: tuple[str, AlterConfigOpType, str | None]) -> int | None:
        changed = ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=operation) for name, operation, value in entries
            ],
        )
        return code_of(admin.incremental_alter_configs([changed])[resource])

    def current(name: str) -> tuple[str | None, ConfigSource]:
        entry = admin.describe_configs([resource])[resource].result(WAIT_S)[name]
        return entry.value, ConfigSource(entry.source)

    set_, delete = AlterConfigOpType.SET, AlterConfigOpType.DELETE
    append, subtract = AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT
    on_topic = ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert current("retention.ms") == ("1000000", on_topic)
    assert current("cleanup.policy") == ("delete", ConfigSource.DEFAULT_CONFIG)
    assert alter(("retention.ms", set_, "2000000"), ("segment.bytes", set_, "1048576")) is None
    assert current("retention.ms") == ("2000000", on_topic)
    assert current("segment.bytes") == ("1048576", on_topic)
    assert alter(("retention.ms", delete, None)) is None
    assert current("retention.ms")[0] == "604800000"
    assert current("segment.bytes") == ("1048576", on_topic), "what was not named stays"
    assert alter(("cleanup.policy", append, "compact")) is None
    assert current("cleanup.policy") == ("delete,compact", on_topic)
    assert alter(("cleanup.policy", subtract, "delete")) is None
    assert current("cleanup.policy") == ("compact", on_topic)
    assert alter(("cleanup.policy", append, "shred")) == KafkaError.INVALID_CONFIG
    assert alter(("retention.ms", append, "1")) == KafkaError.INVALID_CONFIG
    assert alter(("segment.bytes", set_, "-5")) == KafkaError.INVALID_CONFIG
    assert alter(("no.such.key", set_, "1")) == KafkaError.INVALID_CONFIG
    assert current("cleanup.policy") == ("compact", on_topic)


def test_configs_of_the_broker_and_of_missing_topics(admin: AdminClient, unique: Unique) -> None:
    [broker_id] = admin.list_topics(timeout=WAIT_S).brokers
    broker = ConfigResource(ResourceType.BROKER, str(broker_id))
    found = admin.describe_configs([broker])[broker].result(WAIT_S)
    assert found["listeners"].value.startswith("PLAINTEXT://127.0.0.1:")
    assert found["log.dirs"].is_read_only and not found["log.retention.ms"].is_read_only
    assert found["log.retention.hours"].value == "168"
    missing = ConfigResource(ResourceType.TOPIC, unique("missing"))
    assert code_of(admin.describe_configs([missing])[missing]) == KafkaError.UNKNOWN_TOPIC_OR_PART


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


def test_offsets_are_listed(bootstrap: str, new_topic: NewTopicFactory, admin: AdminClient) -> None:
    topic, sent = new_topic(), assorted(9)
    produce(bootstrap, topic, sent[:4])
    # The greatest timestamp is not that of the last record.
    newest = sent[8]._replace(timestamp_ms=sent[8].timestamp_ms + 1000)
    produce(bootstrap, topic, [newest])
    produce(bootstrap, topic, sent[4:8])
    partition = TopicPartition(topic, 0)

    def listed(spec: OffsetSpec) -> tuple[int, int]:
        asked = admin.list_offsets({partition: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        result = asked[partition].result(WAIT_S)
        return result.offset, result.timestamp

    assert listed(OffsetSpec.earliest())[0] == 0
    assert listed(OffsetSpec.latest())[0] == 9
    assert listed(OffsetSpec.max_timestamp()) == (4, newest.timestamp_ms)
    assert listed(OffsetSpec.for_timestamp(sent[2].timestamp_ms)) == (2, sent[2].timestamp_ms)
    assert listed(OffsetSpec.for_timestamp(sent[3].timestamp_ms + 1)) == (4, newest.timestamp_ms)


def test_the_cluster_is_described(bootstrap: str, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(WAIT_S)
    [node] = cluster.nodes
    assert f"{node.host}:{node.port}" == bootstrap
    assert cluster.controller.id == node.id
    assert len(cluster.cluster_id) == 22
