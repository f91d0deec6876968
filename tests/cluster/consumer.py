"""A librdkafka group member that prints the records it reads, in the format of Apache Kafka's VerifiableConsumer.

`python -m tests.cluster.consumer SETTINGS TOPIC GROUP`: reads and commits until SIGTERM.
"""

from __future__ import annotations

import json
import pathlib
import signal
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.cluster.stuck import end_when_locked_up

offsets: dict[int, int] = {}
positions: dict[int, int] = {}
"""partition -> behind the last record read, since the last commit."""


def say(name: str, **fields: object) -> None:
    print(json.dumps({"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}))


def listed(partitions: list[TopicPartition]) -> list[dict[str, object]]:
    return [{"partition": part.partition, "offset": part.offset} for part in partitions]


def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    say("partitions_assigned", partitions=listed(partitions))
    consumer.assign(partitions)


def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    say("partitions_revoked", partitions=listed(partitions))
    # Not this member's to commit any more.
    offsets.clear()
    positions.clear()
    consumer.unassign()


def failed(error: KafkaError) -> None:
    print(f"{time.strftime('%H:%M:%S')} {error}", file=sys.stderr, flush=True)


def commit(consumer: Consumer, ends: dict[int, int], topic: str) -> None:
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in ends.items()]
    try:
        done = consumer.commit(offsets=wanted, asynchronous=False) or []
        errors = [str(part.error) for part in done if part.error]
        fine = [part for part in done if not part.error]
    except KafkaException as error:
        errors, fine = [str(error.args[0].name())], []
    if fine:
        say("offsets_committed", offsets=listed(fine), success=True)
    for reason in errors:
        say("offsets_committed", offsets=[], success=False, error=reason)


def main() -> None:
    settings, topic, group = sys.argv[1:]
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(1))
    consumer = Consumer(
        {
            **json.loads(pathlib.Path(settings).read_text()),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 1000,
            "socket.timeout.ms": 6000,
            "socket.connection.setup.timeout.ms": 5000,
            "topic.metadata.refresh.interval.ms": 5000,
            "fetch.wait.max.ms": 200,
            "partition.assignment.strategy": "range",
            "check.crcs": True,
            "error_cb": failed,
        }
    )
    end_when_locked_up()
    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
    while not ending:
        batch_ends = time.monotonic() + 0.2
        while (left := batch_ends - time.monotonic()) > 0:
            message = consumer.poll(left)
            if message is None:
                continue
            value = message.value()
            if message.error() or not isinstance(value, bytes):
                print(f"{time.strftime('%H:%M:%S')} {message.error()}", file=sys.stderr, flush=True)
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None
            say("record_data", partition=partition, offset=offset, value=value.decode())
            offsets[partition] = offset + 1
        # Also without new records: a commit that a cut connection has kept may arrive long after the later ones.
        offsets.update({partition: end for partition, end in positions.items() if partition not in offsets})
        positions.update(offsets)
        if offsets:
            sys.stdout.flush()  # a record that is committed must be known to have been read, wherever this process ends
            commit(consumer, dict(offsets), topic)
            offsets.clear()
        sys.stdout.flush()
    consumer.close()
    say("shutdown_complete")


if __name__ == "__main__":
    main()
