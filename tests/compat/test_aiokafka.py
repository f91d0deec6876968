"""aiokafka: the asyncio client, with a protocol implementation and fetch loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, OffsetAndMetadata
from aiokafka import TopicPartition as Partition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import (
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from tests.compat import records
from tests.compat.records import CODECS, WAIT_S, Sent

pytestmark = [pytest.mark.compat, pytest.mark.slow]

SESSION_MS = 45_000
"""No member expires because its process had to wait for the processor; the client's default is ten seconds."""

NewTopicFactory = Callable[..., str]
Unique = Callable[[str], str]


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs an async test function, for a bounded time."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), 3 * WAIT_S))

    return run


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, f"waited {WAIT_S:.0f} s in vain: {what}"
        await asyncio.sleep(0.01)


def assorted(count: int = 40) -> list[Sent]:
    """This client refuses headers without a value."""
    return records.assorted(count, null_headers=False)


@asynccontextmanager
async def producing(bootstrap: str, **config: Any) -> AsyncIterator[AIOKafkaProducer]:
    # A batch of several records, so that the codecs have something to do.
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **{"linger_ms": 20, **config})
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def produce(bootstrap: str, topic: str, sent: Sequence[Sent], partition: int = 0, **config: Any) -> list[Any]:
    """Send the records and return the broker's result for each."""
    async with producing(bootstrap, **config) as producer:
        futures = [
            await producer.send(topic, one.value, one.key, partition, one.timestamp_ms, one.headers) for one in sent
        ]
        return list(await asyncio.gather(*futures))


@asynccontextmanager
async def reading(bootstrap: str, topic: str, **config: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer of partition 0."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, **{"auto_offset_reset": "none", **config})
    await consumer.start()
    try:
        consumer.assign([Partition(topic, 0)])
        yield consumer
    finally:
        await consumer.stop()


async def take(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    """The next `count` records."""
    return [await asyncio.wait_for(consumer.getone(), WAIT_S) for _ in range(count)]


def as_sent(found: Sequence[Any]) -> list[Sent]:
    return [Sent(r.key, r.value, list(r.headers), r.timestamp) for r in found]


# ---- producing and consuming ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@on_a_loop
async def test_records_come_back_as_sent(bootstrap: str, new_topic: NewTopicFactory, codec: str) -> None:
    topic, sent = new_topic(), assorted()
    reports = await produce(bootstrap, topic, sent, compression_type=None if codec == "none" else codec)
    assert [report.offset for report in reports] == list(range(len(sent)))
    async with reading(bootstrap, topic) as consumer:
        await consumer.seek_to_beginning()
        found = await take(consumer, len(sent))
        assert as_sent(found) == sent
        assert [record.offset for record in found] == list(range(len(sent)))
        assert consumer.highwater(Partition(topic, 0)) == len(sent)


@pytest.mark.parametrize("acks", [0, 1, "all"])
@on_a_loop
async def test_acks(bootstrap: str, new_topic: NewTopicFactory, acks: int | str) -> None:
    topic, sent = new_topic(), assorted(16)
    reports = await produce(bootstrap, topic, sent, acks=acks)
    if acks != 0:
        assert [report.offset for report in reports] == list(range(16))
    async with reading(bootstrap, topic) as consumer:
        await consumer.seek_to_beginning()
        assert as_sent(await take(consumer, 16)) == sent


@on_a_loop
async def test_an_idempotent_producer_keeps_the_order(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    async with producing(bootstrap, enable_idempotence=True, linger_ms=0, max_batch_size=200) as producer:
        futures = [await producer.send(topic, b"%d" % number, partition=0) for number in range(1000)]
        assert [(await future).offset for future in futures] == list(range(1000))
    async with reading(bootstrap, topic) as consumer:
        await consumer.seek_to_beginning()
        assert [record.value for record in await take(consumer, 1000)] == [b"%d" % number for number in range(1000)]


@on_a_loop
async def test_reading_from_any_place(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic, sent = new_topic(), assorted(30)
    partition = Partition(topic, 0)
    await produce(bootstrap, topic, sent)
    async with reading(bootstrap, topic) as consumer:
        consumer.seek(partition, 17)
        assert as_sent(await take(consumer, 13)) == sent[17:]
        await consumer.seek_to_end()
        assert await consumer.position(partition) == 30
        late = Sent(b"late", b"late", [], sent[-1].timestamp_ms + 10)
        await produce(bootstrap, topic, [late])
        assert as_sent(await take(consumer, 1)) == [late]
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 31}

        async def offset_at(timestamp_ms: int) -> int | None:
            found = (await consumer.offsets_for_times({partition: timestamp_ms}))[partition]
            return None if found is None else found.offset

        assert await offset_at(sent[12].timestamp_ms) == 12
        assert await offset_at(sent[12].timestamp_ms + 1) == 13
        assert await offset_at(0) == 0
        assert await offset_at(late.timestamp_ms + 1) is None
        consumer.seek(partition, 25)
        assert as_sent(await take(consumer, 6)) == [*sent[25:], late]
        consumer.seek(partition, 1000)
        with pytest.raises(OffsetOutOfRangeError):
            await take(consumer, 1)


@on_a_loop
async def test_a_hand_made_batch_and_small_fetches(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    async with producing(bootstrap) as producer:
        for start in range(0, 20, 5):
            batch = producer.create_batch()
            for number in range(start, start + 5):
                assert batch.append(key=None, value=b"%d" % number * 50, timestamp=None) is not None
            report = await (await producer.send_batch(batch, topic, partition=0))
            assert report.offset == start
    async with reading(bootstrap, topic, max_partition_fetch_bytes=100, fetch_max_bytes=100) as consumer:
        await consumer.seek_to_beginning()
        found = await take(consumer, 20)
        assert [record.value for record in found] == [b"%d" % number * 50 for number in range(20)]


@on_a_loop
async def test_a_producer_creates_a_topic(bootstrap: str, unique: Unique) -> None:
    topic, sent = unique("auto"), assorted(3)
    assert [report.offset for report in await produce(bootstrap, topic, sent)] == [0, 1, 2]
    async with reading(bootstrap, topic) as consumer:
        await consumer.seek_to_beginning()
        assert as_sent(await take(consumer, 3)) == sent


@on_a_loop
async def test_a_message_above_the_limit_is_refused(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(configs={"max.message.bytes": "10000"})
    async with producing(bootstrap, enable_idempotence=True) as producer:
        assert (await producer.send_and_wait(topic, b"x" * 9000, partition=0)).offset == 0
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, b"x" * 20_000, partition=0)


# ---- groups --------------------------------------------------------------------------------------------------------


class Member(ConsumerRebalanceListener):  # type: ignore[misc]
    """One consumer of a group: it reads all the time and remembers the partitions that were revoked."""

    def __init__(self, bootstrap: str, group: str, **config: Any) -> None:
        self.revocations: list[set[int]] = []
        self.read: list[Any] = []
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 300}
        settings["session_timeout_ms"] = SESSION_MS
        self.consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, **{**settings, **config})
        self._reading: asyncio.Task[None] | None = None

    async def start(self, topic: str) -> None:
        self.consumer.subscribe([topic], listener=self)
        await self.consumer.start()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for record in self.consumer:
            self.read.append(record)

    def on_partitions_assigned(self, assigned: Any) -> None:
        pass

    def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            self.revocations.append({partition.partition for partition in revoked})

    @property
    def owned(self) -> set[int]:
        return {partition.partition for partition in self.consumer.assignment()}

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None
            await self.consumer.stop()


async def settled(members: Sequence[Member], *counts: int) -> None:
    """Waits until the members own that many partitions, no two the same."""

    async def reached() -> bool:
        owned = [number for member in members for number in member.owned]
        return [len(member.owned) for member in members] == list(counts) and len(owned) == len(set(owned))

    await until(reached, f"a division into {counts}")


@asynccontextmanager
async def group_of(bootstrap: str, group: str, topic: str) -> AsyncIterator[Callable[..., Awaitable[Member]]]:
    """Makes members, and stops those that the test left."""
    members: list[Member] = []

    async def join(**config: Any) -> Member:
        members.append(Member(bootstrap, group, **config))
        await members[-1].start(topic)
        return members[-1]

    try:
        yield join
    finally:
        for member in members:
            await member.stop()


@pytest.mark.parametrize(
    "assignor", [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor], ids=lambda one: one.name
)
@on_a_loop
async def test_a_group_shares_the_partitions(
    bootstrap: str, new_topic: NewTopicFactory, unique: Unique, assignor: Any
) -> None:
    topic = new_topic(4)
    async with group_of(bootstrap, unique("group"), topic) as join:
        first = await join(partition_assignment_strategy=[assignor])
        await settled([first], 4)
        second = await join(partition_assignment_strategy=[assignor])
        await settled([first, second], 2, 2)
        # Once for the other; and maybe once for itself, when it learns of the topic after it has joined.
        given_up = {frozenset(revoked) for revoked in first.revocations}
        assert given_up == {frozenset({0, 1, 2, 3})}, "an eager member gives up everything"
        sent = assorted(40)
        for partition in range(4):
            await produce(bootstrap, topic, sent[partition::4], partition)

        async def all_read() -> bool:
            return len(first.read) + len(second.read) >= 40

        await until(all_read, "every record at one member")
        by_partition: dict[int, list[Any]] = {}
        for member in (first, second):
            for record in member.read:
                assert record.partition in member.owned
                by_partition.setdefault(record.partition, []).append(record)
        assert {number: as_sent(found) for number, found in by_partition.items()} == {
            number: sent[number::4] for number in range(4)
        }
        await second.stop()
        # Well within the session timeout: it has left, it did not expire.
        await settled([first], 4)


@on_a_loop
async def test_a_group_goes_on_where_it_committed(bootstrap: str, new_topic: NewTopicFactory, unique: Unique) -> None:
    topic, sent = new_topic(), assorted(10)
    partition = Partition(topic, 0)
    await produce(bootstrap, topic, sent)
    async with group_of(bootstrap, unique("group"), topic) as join:

        async def read(member: Member, count: int) -> None:
            async def reached() -> bool:
                return len(member.read) >= count

            await until(reached, f"{count} records")

        first = await join()
        await read(first, 4)
        await first.consumer.commit({partition: OffsetAndMetadata(4, "so far")})
        await first.stop()
        second = await join(enable_auto_commit=True)
        await read(second, 6)
        assert as_sent(second.read) == sent[4:]
        assert await second.consumer.committed(partition) == 4
        await second.stop()  # commits
        third = await join()
        await settled([third], 1)
        assert await third.consumer.committed(partition) == 10


@on_a_loop
async def test_a_static_member_comes_back_without_a_rebalance(
    bootstrap: str, new_topic: NewTopicFactory, unique: Unique
) -> None:
    topic = new_topic(4)
    async with group_of(bootstrap, unique("static"), topic) as join:
        first = await join(group_instance_id="one")
        await settled([first], 4)
        second = await join(group_instance_id="two")
        await settled([first, second], 2, 2)
        owned, seen = second.owned, len(first.revocations)
        await second.stop()
        back = await join(group_instance_id="two")
        await settled([first, back], 2, 2)
        assert back.owned == owned
        assert len(first.revocations) == seen, "the other member noticed nothing"


# ---- administration ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def administering(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@on_a_loop
async def test_topics_are_created_described_grown_and_deleted(bootstrap: str, unique: Unique) -> None:
    topic = unique("admin")
    new = NewTopic(topic, 2, 1, topic_configs={"retention.ms": "3600000"})
    async with administering(bootstrap) as client:

        async def partitions() -> int:
            [described] = await client.describe_topics([topic])
            return len(described["partitions"])

        async def grown() -> bool:
            return await partitions() == 5

        async def present() -> bool:
            return topic in await client.list_topics()

        async def absent() -> bool:
            return topic not in await client.list_topics()

        def codes(response: Any, field: str = "topic_errors") -> list[int]:
            return [entry[1] for entry in getattr(response, field)]

        assert codes(await client.create_topics([new])) == [0]
        await until(present, "the topic")
        assert codes(await client.create_topics([new])) == [TopicAlreadyExistsError.errno]
        assert codes(await client.create_partitions({topic: NewPartitions(5)})) == [0]
        await until(grown, "five partitions")
        cluster = await client.describe_cluster()
        assert [f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]] == [bootstrap]
        assert codes(await client.delete_topics([topic]), "topic_error_codes") == [0]
        await until(absent, "the topic's end")
        again = codes(await client.delete_topics([topic]), "topic_error_codes")
        assert again == [UnknownTopicOrPartitionError.errno]


@on_a_loop
async def test_topic_configs_are_described(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(configs={"retention.ms": "1000000", "segment.bytes": "1048576"})
    async with administering(bootstrap) as client:

        async def current(key: str) -> str:
            [response] = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            [resource] = response.resources
            assert resource[0] == 0, resource
            return next(str(entry[1]) for entry in resource[4] if entry[0] == key)

        assert await current("retention.ms") == "1000000"
        assert await current("segment.bytes") == "1048576"
        assert await current("cleanup.policy") == "delete"


@on_a_loop
async def test_groups_are_listed_and_described(bootstrap: str, new_topic: NewTopicFactory, unique: Unique) -> None:
    topic, group = new_topic(2), unique("listed")
    async with group_of(bootstrap, group, topic) as join, administering(bootstrap) as client:
        member = await join(client_id="the-client")
        await settled([member], 2)
        await member.consumer.commit({Partition(topic, 1): OffsetAndMetadata(7, "")})
        assert (group, "consumer") in [tuple(entry[:2]) for entry in await client.list_consumer_groups()]
        [response] = await client.describe_consumer_groups([group])
        [described] = response.groups
        assert described[0] == 0 and described[1:4] == (group, "Stable", "consumer")
        [found] = described[5]
        assert "the-client" in found and "/127.0.0.1" in found
        offsets = await client.list_consumer_group_offsets(group)
        assert {key: entry.offset for key, entry in offsets.items()} == {Partition(topic, 1): 7}
        assert await client.find_coordinator(group) in {node["node_id"] for node in (await nodes(client))}


async def nodes(client: AIOKafkaAdminClient) -> list[dict[str, Any]]:
    brokers: list[dict[str, Any]] = (await client.describe_cluster())["brokers"]
    return brokers
