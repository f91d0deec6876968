"""A librdkafka producer that prints the result of each record, in the format of Apache Kafka's VerifiableProducer.

`python -m tests.cluster.producer SETTINGS TOPIC PARTITIONS NUMBER RATE ACKS`: it sends RATE records a second in turn to
all partitions until SIGTERM, then ends when every record is answered, and prints how many it has sent, each repetition
included.
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


class Statistics:
    """The library's own count of what it has sent, which it renews every now and then."""

    EVERY_MS = 500

    def __init__(self) -> None:
        self.renewals = 0
        self._latest = "{}"

    def renew(self, page: str) -> None:
        self._latest = page
        self.renewals += 1

    def records_sent(self, topic: str) -> int:
        """Return how many records it put into requests; one that it sent again counts again."""
        partitions = json.loads(self._latest)["topics"][topic]["partitions"].values()
        return sum(int(partition["txmsgs"]) for partition in partitions)


def main() -> None:
    settings, topic, partitions, number, rate, acks = sys.argv[1:]
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(1))
    statistics = Statistics()
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
            "statistics.interval.ms": Statistics.EVERY_MS,
            "stats_cb": statistics.renew,
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
    # The page that comes next may be of a moment before the last answer; the one behind it is not.
    last = statistics.renewals + 2
    while statistics.renewals < last:
        producer.poll(1)
    say("records_sent", records=statistics.records_sent(topic))
    say("shutdown_complete")


if __name__ == "__main__":
    main()
