"""Topics made, filled and read by an ordinary client, on the broker under test."""

import uuid
from collections import Counter
from collections.abc import Iterable

PARTITIONS = 2
CLIENT_S = 120.0


class Topics:
    """Creates, fills and reads topics through confluent-kafka, on the broker under test."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def create(self, partitions: int = PARTITIONS, prefix: str = "spark", config: dict[str, str] | None = None) -> str:
        """Create a topic. It keeps records of any age, as the next retention check would delete old timestamps."""
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        self.create_named(name, partitions, config)
        return name

    def create_named(self, name: str, partitions: int = PARTITIONS, config: dict[str, str] | None = None) -> None:
        """Create a topic of a given name."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1, config={"retention.ms": "-1"} | (config or {}))])[
            name
        ].result(CLIENT_S)

    def produce(
        self,
        topic: str,
        values: Iterable[str | bytes | None],
        partition: int | None = None,
        key: str | None = None,
        headers: list[tuple[str, str | bytes | None]] | None = None,
        timestamp_ms: int = 0,
    ) -> None:
        """Sends the values and waits for all acknowledgements; by turns to the partitions unless one is named."""
        from confluent_kafka import Producer

        failures: list[object] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all"})
        for number, value in enumerate(values):
            producer.produce(
                topic,
                value,
                key=key,
                headers=headers,
                timestamp=timestamp_ms,
                partition=number % PARTITIONS if partition is None else partition,
                on_delivery=lambda error, message: failures.append(error) if error else None,
            )
        assert producer.flush(CLIENT_S) == 0
        assert failures == []

    def read(self, topic: str, partitions: int = PARTITIONS) -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values of everything in the topic, partition by partition in order."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "t", "enable.auto.commit": False})
        records: list[tuple[bytes | None, bytes | None]] = []
        try:
            for partition in range(partitions):
                at = TopicPartition(topic, partition, 0)
                end = consumer.get_watermark_offsets(at, CLIENT_S)[1]
                consumer.assign([at])
                next_offset = 0
                while next_offset < end:
                    message = consumer.poll(CLIENT_S)
                    assert message is not None and message.error() is None, message and message.error()
                    records.append((message.key(), message.value()))
                    next_offset = (message.offset() or 0) + 1
        finally:
            consumer.close()
        return records

    def last_values(self, topic: str) -> Counter[str]:
        """The count that each word has last in an output topic of the word count."""
        return Counter({key.decode(): int(value) for key, value in self.read(topic) if key and value})
