"""confluent-kafka (librdkafka), the client of the command line and of most languages but Java: records."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.compat.confluent import (
    NewTopicFactory,
    Unique,
    as_sent,
    described_topics,
    error_of,
    produce,
    read_to_end,
    reading,
    take_to_end,
)
from tests.compat.records import CODECS, WAIT_S, Sent, assorted, until

pytestmark = [pytest.mark.compat, pytest.mark.slow]

LONG_POLL_MS = 50_000
"""Less than librdkafka's limit for a request."""


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[Consumer]:
    made = reading(bootstrap)
    yield made
    made.close()


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
    slow = reading(bootstrap, **{"fetch.wait.max.ms": LONG_POLL_MS, "enable.partition.eof": False})
    try:
        produce(bootstrap, topic, assorted(1))
        slow.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert slow.poll(WAIT_S) is not None  # the next fetch waits at the end
        sent = assorted(2)
        start = time.monotonic()
        produce(bootstrap, topic, sent[1:])
        message = slow.poll(WAIT_S)
        assert message is not None and message.value() == sent[1].value
        assert time.monotonic() - start < LONG_POLL_MS / 2000, "it came with the end of the wait"
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
