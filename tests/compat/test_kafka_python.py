"""kafka-python 3: a client in Python that shares no code with another one."""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

with warnings.catch_warnings():
    # Its import reads its schemas by a function that Python calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.admin
    import kafka.errors
    from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata
    from kafka import TopicPartition as Partition
    from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor

from tests.compat import records
from tests.compat.records import CODECS, WAIT_S, Sent, until

# It may leave a socket to the garbage collector.
LEAKS = "ignore::pytest.PytestUnraisableExceptionWarning"
pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.filterwarnings(LEAKS)]


@pytest.fixture(scope="module", autouse=True)
def _leaks_stay_here() -> Iterator[None]:
    yield
    gc.collect()


NewTopicFactory = Callable[..., str]
Unique = Callable[[str], str]


def assorted(count: int = 40) -> list[Sent]:
    """This client refuses headers without a value, and records with neither key nor value."""
    return records.assorted(count, null_headers=False)


def produce(bootstrap: str, topic: str, records: Sequence[Sent], partition: int = 0, **config: Any) -> list[int]:
    """Sends the records and returns their offsets."""
    # A batch of several records, so that the codecs have something to do.
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20, **config)
    with contextlib.closing(producer):
        futures = [
            producer.send(topic, sent.value, sent.key, sent.headers, partition, sent.timestamp_ms) for sent in records
        ]
        producer.flush(WAIT_S)
        return [future.get(WAIT_S).offset for future in futures]


@contextlib.contextmanager
def reading(bootstrap: str, topic: str, **config: Any) -> Iterator[KafkaConsumer]:
    """A consumer of partition 0."""
    config = {"auto_offset_reset": "none", "enable_auto_commit": False, **config}
    with contextlib.closing(KafkaConsumer(bootstrap_servers=bootstrap, **config)) as consumer:
        consumer.assign([Partition(topic, 0)])
        yield consumer


def take(consumer: KafkaConsumer, count: int) -> list[Any]:
    """The next `count` records."""
    found: list[Any] = []

    def enough() -> bool:
        for part in consumer.poll(timeout_ms=200, max_records=count - len(found)).values():
            found.extend(part)
        return len(found) >= count

    until(enough, f"{count} records")
    return found


def as_sent(records: Sequence[Any]) -> list[Sent]:
    return [Sent(r.key, r.value, list(r.headers), r.timestamp) for r in records]


# ---- producing and consuming ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_sent(bootstrap: str, new_topic: NewTopicFactory, codec: str) -> None:
    topic, sent = new_topic(), assorted()
    compression = None if codec == "none" else codec
    assert produce(bootstrap, topic, sent, compression_type=compression) == list(range(len(sent)))
    with reading(bootstrap, topic, check_crcs=True) as consumer:
        consumer.seek_to_beginning()
        found = take(consumer, len(sent))
        assert as_sent(found) == sent
        assert [record.offset for record in found] == list(range(len(sent)))
        assert {record.timestamp_type for record in found} == {0}


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(bootstrap: str, new_topic: NewTopicFactory, acks: int | str) -> None:
    topic, sent = new_topic(), assorted(16)
    offsets = produce(bootstrap, topic, sent, acks=acks, enable_idempotence=False)
    if acks != 0:
        assert offsets == list(range(16))
    with reading(bootstrap, topic) as consumer:
        consumer.seek_to_beginning()
        assert as_sent(take(consumer, 16)) == sent


def test_an_idempotent_producer_keeps_the_order(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=0, batch_size=200)
    with contextlib.closing(producer):
        futures = [producer.send(topic, b"%d" % number, partition=0) for number in range(1000)]
        producer.flush(WAIT_S)
        assert [future.get(WAIT_S).offset for future in futures] == list(range(1000))
    with reading(bootstrap, topic) as consumer:
        consumer.seek_to_beginning()
        assert [record.value for record in take(consumer, 1000)] == [b"%d" % number for number in range(1000)]


def test_reading_from_any_place(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic, sent = new_topic(), assorted(30)
    partition = Partition(topic, 0)
    produce(bootstrap, topic, sent)
    with reading(bootstrap, topic) as consumer:
        consumer.seek(partition, 17)
        assert as_sent(take(consumer, 13)) == sent[17:]
        consumer.seek_to_end()
        assert consumer.position(partition) == 30
        late = Sent(b"late", b"late", [], sent[-1].timestamp_ms + 10)
        produce(bootstrap, topic, [late])
        assert as_sent(take(consumer, 1)) == [late]
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 31}

        def offset_at(timestamp_ms: int) -> int | None:
            found = consumer.offsets_for_times({partition: timestamp_ms})[partition]
            return None if found is None else found.offset

        assert offset_at(sent[12].timestamp_ms) == 12
        assert offset_at(sent[12].timestamp_ms + 1) == 13
        assert offset_at(0) == 0
        assert offset_at(late.timestamp_ms + 1) is None
        consumer.seek(partition, offset_at(sent[25].timestamp_ms))
        assert as_sent(take(consumer, 6)) == [*sent[25:], late]
        consumer.seek(partition, 1000)
        with pytest.raises(kafka.errors.OffsetOutOfRangeError):
            take(consumer, 1)


def test_small_fetches_and_no_sessions(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=0, batch_size=0)
    values = [b"%d" % number * 100 for number in range(50)]
    with contextlib.closing(producer):
        for value in values:
            producer.send(topic, value, partition=0)
        producer.flush(WAIT_S)
    limits = {"max_partition_fetch_bytes": 500, "fetch_max_bytes": 800, "enable_incremental_fetch_sessions": False}
    with reading(bootstrap, topic, **limits) as consumer:
        consumer.seek_to_beginning()
        assert [record.value for record in take(consumer, 50)] == values


def test_a_producer_creates_a_topic(bootstrap: str, unique: Unique) -> None:
    topic, sent = unique("auto"), assorted(3)
    assert produce(bootstrap, topic, sent) == [0, 1, 2]
    with reading(bootstrap, topic) as consumer:
        consumer.seek_to_beginning()
        assert as_sent(take(consumer, 3)) == sent


def test_a_message_above_the_limit_is_refused(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(configs={"max.message.bytes": "10000"})
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=0)
    with contextlib.closing(producer):
        assert producer.send(topic, b"x" * 9000, partition=0).get(WAIT_S).offset == 0
        with pytest.raises(kafka.errors.MessageSizeTooLargeError):
            producer.send(topic, b"x" * 20_000, partition=0).get(WAIT_S)


def test_a_topic_that_does_not_exist(bootstrap: str, client: KafkaAdminClient, unique: Unique) -> None:
    topic = unique("missing")
    with contextlib.closing(KafkaConsumer(bootstrap_servers=bootstrap, allow_auto_create_topics=False)) as consumer:
        assert not consumer.partitions_for_topic(topic)
    [described] = client.describe_topics([topic])
    assert described["error_code"] == kafka.errors.UnknownTopicOrPartitionError.errno
    assert topic not in client.list_topics()


# ---- groups --------------------------------------------------------------------------------------------------------


class Member(ConsumerRebalanceListener):  # type: ignore[misc]
    """One consumer of a group: the partitions it owns, its rebalance events, the records it read."""

    def __init__(self, bootstrap: str, group: str, topic: str, **config: Any) -> None:
        self.revocations: list[set[int]] = []
        self.read: list[Any] = []
        settings: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 300,
            # The consumer may join before it knows the topic, and then finds it only at its next metadata request.
            "metadata_max_age_ms": 500,
        }
        self.consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, **{**settings, **config})
        # A leader that learns of the topic in the middle of its assignment would not consider it again.
        until(lambda: bool(self.consumer.partitions_for_topic(topic)), "the topic")
        self.consumer.subscribe([topic], listener=self)

    def on_partitions_assigned(self, assigned: Any) -> None:
        pass

    def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            self.revocations.append({partition.partition for partition in revoked})

    @property
    def owned(self) -> set[int]:
        return {partition.partition for partition in self.consumer.assignment()}

    def poll(self, timeout_ms: int | None = None) -> None:
        # A poll that is shorter than a round trip of join, sync and offset fetch can leave this client without a
        # position without end: it is longer where such a round trip is due.
        wait_ms = timeout_ms or (300 if self.owned else 1500)
        for part in self.consumer.poll(timeout_ms=wait_ms).values():
            self.read.extend(part)

    def read_until(self, count: int) -> None:
        def reached() -> bool:
            self.poll(10_000)  # it returns with the first records
            return len(self.read) >= count

        until(reached, f"{count} records")

    def settled(self, others: Sequence[Member], *counts: int) -> None:
        """Polls this member and the others until they own that many partitions, no two the same."""
        members = [self, *others]

        def reached() -> bool:
            for member in members:
                member.poll()
            owned = [number for member in members for number in member.owned]
            return [len(member.owned) for member in members] == list(counts) and len(owned) == len(set(owned))

        until(reached, f"a division into {counts}")


@pytest.fixture
def join(bootstrap: str) -> Iterator[Callable[..., Member]]:
    """Makes members, and closes those that the test left."""
    with contextlib.ExitStack() as stack:

        def make(group: str, topic: str, **config: Any) -> Member:
            member = Member(bootstrap, group, topic, **config)
            stack.callback(member.consumer.close)
            return member

        yield make


def test_a_group_shares_the_partitions(
    bootstrap: str, new_topic: NewTopicFactory, unique: Unique, join: Callable[..., Member]
) -> None:
    topic, group = new_topic(4), unique("group")
    config = {"partition_assignment_strategy": [RangePartitionAssignor]}
    first = join(group, topic, **config)
    first.settled([], 4)
    second = join(group, topic, **config)
    first.settled([second], 2, 2)
    # Once for the other; and maybe once for itself, when it learns of the topic after it has joined.
    given_up = {frozenset(revoked) for revoked in first.revocations}
    assert given_up == {frozenset({0, 1, 2, 3})}, "an eager member gives up everything"
    sent = assorted(40)
    for partition in range(4):
        produce(bootstrap, topic, sent[partition::4], partition)

    def all_read() -> bool:
        first.poll()
        second.poll()
        return len(first.read) + len(second.read) >= 40

    until(all_read, "every record at one member")
    by_partition: dict[int, list[Any]] = {}
    for member in (first, second):
        for record in member.read:
            assert record.partition in member.owned
            by_partition.setdefault(record.partition, []).append(record)
    assert {number: as_sent(records) for number, records in by_partition.items()} == {
        number: sent[number::4] for number in range(4)
    }
    second.consumer.close()
    # Well within the session timeout: it has left, it did not expire.
    first.settled([], 4)


def test_a_cooperative_group_moves_only_what_must_move(
    new_topic: NewTopicFactory, unique: Unique, join: Callable[..., Member]
) -> None:
    # The test does not check the records read afterwards: after this rebalance the members read none, nor do they from
    # Apache Kafka.
    topic, group = new_topic(4), unique("group")
    config = {"partition_assignment_strategy": [CooperativeStickyAssignor]}
    first = join(group, topic, **config)
    first.settled([], 4)
    second = join(group, topic, **config)
    first.settled([second], 2, 2)
    assert first.revocations == [second.owned]
    second.consumer.close()
    first.settled([], 4)


def test_a_group_goes_on_where_it_committed(
    bootstrap: str, new_topic: NewTopicFactory, unique: Unique, join: Callable[..., Member]
) -> None:
    topic, group, sent = new_topic(), unique("group"), assorted(10)
    partition = Partition(topic, 0)
    produce(bootstrap, topic, sent)
    first = join(group, topic)
    first.read_until(4)
    first.consumer.commit({partition: OffsetAndMetadata(4, "so far", -1)})
    first.consumer.close()
    second = join(group, topic)
    second.read_until(6)
    assert as_sent(second.read) == sent[4:]
    assert second.consumer.committed(partition) == 4
    assert second.consumer.committed(partition, metadata=True).metadata == "so far"
    second.consumer.commit()
    second.consumer.close()
    third = join(group, topic)
    third.settled([], 1)
    assert third.consumer.committed(partition) == 10


def test_a_static_member_comes_back_without_a_rebalance(
    new_topic: NewTopicFactory, unique: Unique, join: Callable[..., Member]
) -> None:
    topic, group = new_topic(4), unique("static")
    first = join(group, topic, group_instance_id="one")
    first.settled([], 4)
    second = join(group, topic, group_instance_id="two")
    first.settled([second], 2, 2)
    owned, seen = second.owned, len(first.revocations)
    second.consumer.close()
    back = join(group, topic, group_instance_id="two")
    first.settled([back], 2, 2)
    assert back.owned == owned
    assert len(first.revocations) == seen, "the other member noticed nothing"


@pytest.mark.parametrize("release", [(0, 11), (1, 1), (2, 4), (3, 0)], ids=lambda release: ".".join(map(str, release)))
def test_as_it_would_speak_to_an_older_broker(
    bootstrap: str, new_topic: NewTopicFactory, unique: Unique, join: Callable[..., Member], release: tuple[int, int]
) -> None:
    # Old versions of every request: no flexible versions before 2.4, no topic ids, no member ids given beforehand.
    topic, group, sent = new_topic(), unique("old"), assorted(10)
    assert produce(bootstrap, topic, sent, api_version=release) == list(range(10))
    member = join(group, topic, api_version=release)
    member.read_until(10)
    assert as_sent(member.read) == sent
    member.consumer.commit()
    assert member.consumer.committed(Partition(topic, 0)) == 10
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=bootstrap, api_version=release)) as old_client:
        described = old_client.describe_groups([group])[group]
        assert described["group_state"] == "Stable" and len(described["members"]) == 1
        member.consumer.close()  # or its next metadata request would create the topic again
        old_client.delete_topics([topic])
        until(lambda: topic not in old_client.list_topics(), "the topic's end")


@pytest.mark.parametrize("codec", [None, "gzip", "snappy"])
@pytest.mark.parametrize("release", [(0, 8, 2), (0, 9), (0, 10)], ids=lambda release: ".".join(map(str, release)))
def test_message_sets(bootstrap: str, new_topic: NewTopicFactory, release: tuple[int, ...], codec: str | None) -> None:
    """Records as they were before batches, without headers, and before 0.10 without times."""
    topic = new_topic()
    sent = [one._replace(headers=[]) for one in assorted(40)]
    assert produce(bootstrap, topic, sent, api_version=release, compression_type=codec) == list(range(40))
    with reading(bootstrap, topic, api_version=release) as consumer:
        consumer.seek(Partition(topic, 0), 0)
        found = as_sent(take(consumer, 40))
    if release < (0, 10):
        sent, found = ([one._replace(timestamp_ms=0) for one in some] for some in (sent, found))
    assert found == sent


def test_a_message_larger_than_an_old_fetch_is_told(bootstrap: str, new_topic: NewTopicFactory) -> None:
    """Which comes whole from Kafka 0.10.1 on, as the first of an answer."""
    topic, limit = new_topic(), 4000
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    with contextlib.closing(producer):
        producer.send(topic, b"x" * 5 * limit, partition=0).get(WAIT_S)
    with reading(bootstrap, topic, api_version=(0, 9), max_partition_fetch_bytes=limit) as consumer:
        consumer.seek(Partition(topic, 0), 0)
        with pytest.raises(kafka.consumer.fetcher.RecordTooLargeError):
            take(consumer, 1)
    with reading(bootstrap, topic, max_partition_fetch_bytes=limit) as consumer:
        consumer.seek(Partition(topic, 0), 0)
        assert len(take(consumer, 1)[0].value) == 5 * limit


def test_offsets_from_before_there_were_coordinators(
    bootstrap: str, new_topic: NewTopicFactory, unique: Unique
) -> None:
    """Versions 0 of OffsetCommit and OffsetFetch, which every broker answers."""
    topic, group, old = new_topic(), unique("nodes"), (0, 8, 1)
    produce(bootstrap, topic, [one._replace(headers=[]) for one in assorted(10)], api_version=old)
    for start in (0, 6):
        with reading(bootstrap, topic, api_version=old, group_id=group, auto_offset_reset="earliest") as consumer:
            assert (consumer.committed(Partition(topic, 0)) or 0) == start
            assert [record.offset for record in take(consumer, 4)] == list(range(start, start + 4))
            consumer.commit({Partition(topic, 0): OffsetAndMetadata(6, "", -1)})


# ---- administration ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[KafkaAdminClient]:
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as made:
        yield made


def test_topics_are_created_described_grown_and_deleted(client: KafkaAdminClient, unique: Unique) -> None:
    topic = unique("admin")
    new = {topic: {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "3600000"}}}
    client.create_topics(new, validate_only=True)
    assert topic not in client.list_topics()
    client.create_topics(new, wait_for_metadata=True)
    assert topic in client.list_topics()
    [described] = client.describe_topics([topic])
    assert described["name"] == topic and described["error_code"] == 0
    assert sorted(entry["partition_index"] for entry in described["partitions"]) == [0, 1]
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        client.create_topics(new)
    client.create_partitions({topic: 5})
    until(lambda: len(client.describe_topics([topic])[0]["partitions"]) == 5, "five partitions")
    with pytest.raises(kafka.errors.InvalidPartitionsError):
        client.create_partitions({topic: 3})
    client.delete_topics([topic])
    until(lambda: topic not in client.list_topics(), "the topic's end")
    with pytest.raises(kafka.errors.UnknownTopicOrPartitionError):
        client.delete_topics([topic])


def test_topic_configs_change_by_all_four_operations(client: KafkaAdminClient, new_topic: NewTopicFactory) -> None:
    topic = new_topic(configs={"retention.ms": "1000000"})

    def alter(**changes: tuple[AlterConfigOp, str | None]) -> None:
        named = {key.replace("_", "."): change for key, change in changes.items()}
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, named)], incremental=True)

    def current() -> dict[str, str]:
        """Return the settings of the topic itself."""
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = client.describe_configs([resource], config_filter="all")["topic"][topic]
        return {key: entry["value"] for key, entry in found.items() if entry["config_source"] == "DYNAMIC_TOPIC_CONFIG"}

    assert current() == {"retention.ms": "1000000"}
    alter(retention_ms=(AlterConfigOp.SET, "2000000"), segment_bytes=(AlterConfigOp.SET, "1048576"))
    assert current() == {"retention.ms": "2000000", "segment.bytes": "1048576"}
    alter(retention_ms=(AlterConfigOp.DELETE, None))
    assert current() == {"segment.bytes": "1048576"}
    alter(cleanup_policy=(AlterConfigOp.APPEND, "compact"))
    assert current() == {"segment.bytes": "1048576", "cleanup.policy": "delete,compact"}
    alter(cleanup_policy=(AlterConfigOp.SUBTRACT, "delete"))
    assert current() == {"segment.bytes": "1048576", "cleanup.policy": "compact"}


def test_groups_are_listed_described_and_deleted(
    client: KafkaAdminClient, new_topic: NewTopicFactory, unique: Unique, join: Callable[..., Member]
) -> None:
    topic, group = new_topic(2), unique("listed")
    member = join(group, topic, client_id="the-client")
    member.settled([], 2)
    member.consumer.commit({Partition(topic, 1): OffsetAndMetadata(0, "", -1)})
    states = {entry["group_id"]: entry["group_state"] for entry in client.list_groups()}
    assert states[group].lower() == "stable"
    described = client.describe_groups([group])[group]
    assert described["group_state"] == "Stable" and described["protocol_type"] == "consumer"
    [found] = described["members"]
    assert (found["client_id"], found["client_host"]) == ("the-client", "/127.0.0.1")
    assert {key: entry.offset for key, entry in client.list_group_offsets(group)[group].items()} == {
        Partition(topic, 1): 0
    }

    def deleted() -> str:
        outcome: str = client.delete_groups([group])[group]
        return outcome  # the name of an error

    assert deleted() == "NonEmptyGroupError"
    member.consumer.close()
    assert deleted() in ("OK", "NoError")
    assert group not in {entry["group_id"] for entry in client.list_groups()}
