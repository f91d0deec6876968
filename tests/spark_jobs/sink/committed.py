"""The records of a topic that read_committed shows, by a foreign client."""

from __future__ import annotations

import time
from collections.abc import Collection

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

WAIT_S = 120.0


def committed_records(bootstrap: str, topic: str) -> list[Message]:
    """Return all records below the last stable offset, when no transaction is open any more."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads along",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        partitions = list(consumer.list_topics(topic, WAIT_S).topics[topic].partitions)
        return _read(consumer, topic, partitions)
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str, partitions: Collection[int]) -> list[Message]:
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    found: list[Message] = []
    left = set(partitions)
    deadline = time.monotonic() + WAIT_S
    while left:
        assert time.monotonic() < deadline, f"the end of partitions {left} of {topic} was not reached"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is None:
            found.append(message)
        elif _is_ended(consumer, message):
            left.discard(message.partition() or 0)
    return found


def _is_ended(consumer: Consumer, message: Message) -> bool:
    """Whether this end of a partition is that of its log, and not that before an open transaction."""
    partition = message.partition()
    assert partition is not None
    _, high = consumer.get_watermark_offsets(TopicPartition(message.topic() or "", partition), timeout=WAIT_S)
    offset = message.offset()
    return offset is None or offset >= high
