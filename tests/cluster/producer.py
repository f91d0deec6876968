"""A librdkafka producer that prints the result of each record, in the format of Apache Kafka's VerifiableProducer.

`python -m tests.cluster.producer SETTINGS TOPIC PARTITIONS NUMBER RATE ACKS`: it sends RATE records a second in turn to
all partitions until SIGTERM, then ends when every record is answered.
"""

from __future__ import annotations

import json
import pathlib
import signal
import sys
import time

from confluent_kafka import KafkaError, Message, Producer


def say(name: str, **fields: object) -> None:
    print(json.dumps({"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}))


def answered(error: KafkaError | None, message: Message) -> None:
    value = message.value()
    assert isinstance(value, bytes)
    if error is not None:
        say("producer_send_error", value=value.decode(), exception=error.name(), message=error.str())
    else:
        say("producer_send_success", value=value.decode(), partition=message.partition(), offset=message.offset())


def failed(error: KafkaError) -> None:
    print(f"{time.strftime('%H:%M:%S')} {error}", file=sys.stderr, flush=True)
    if error.fatal():
        say("fatal", message=str(error))


def main() -> None:
    settings, topic, partitions, number, rate, acks = sys.argv[1:]
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(1))
    producer = Producer(
        {
            **json.loads(pathlib.Path(settings).read_text()),
            "acks": acks,
            "enable.idempotence": acks == "all",
            "linger.ms": 5,
            "message.timeout.ms": 300_000,
            "request.timeout.ms": 5000,
            "socket.timeout.ms": 6000,
            "socket.connection.setup.timeout.ms": 5000,
            "topic.metadata.refresh.interval.ms": 5000,
            "queue.buffering.max.messages": 1_000_000,
            "error_cb": failed,
            "debug": "eos",  # its stderr contains the reason of each new epoch
        }
    )
    sequence, begun = 0, time.monotonic()
    while not ending:
        due = int((time.monotonic() - begun) * int(rate))
        while sequence < due:
            producer.produce(
                topic, f"{number}.{sequence}".encode(), partition=sequence % int(partitions), callback=answered
            )
            sequence += 1
        producer.poll(0.02)
        sys.stdout.flush()
    while producer.flush(1):
        sys.stdout.flush()
    say("shutdown_complete")


if __name__ == "__main__":
    main()
