"""A librdkafka producer that prints the result of each record, in the format of Apache Kafka's VerifiableProducer.

`python -m tests.cluster.producer SETTINGS TOPIC PARTITIONS NUMBER RATE ACKS`: it sends RATE records a second in turn to
all partitions until SIGTERM, then ends when every record is answered, and prints how many it has sent, each repetition
that a broker has not refused included.
"""

from __future__ import annotations

import json
import logging
import pathlib
import re
import signal
import sys
import time

from confluent_kafka import KafkaError, Message, Producer

_USUAL = re.compile(r"MessageSet with \d+ message\(s\) .*(?:uncompressed\)|delivered)$")
# "Retry operation" is a batch out of order, as the one before it has failed. "Not leader" does not count: a leader that
# loses its leadership may have appended what it refuses then.
_REFUSED = re.compile(
    r"MessageSet with (\d+) message\(s\) .* encountered error: "
    r"(?:Local: Retry operation|Broker: Not enough in-sync replicas) \(actions "
)


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


class Log(logging.Handler):
    """Prints the lines of the library's log, but for those about batches that are acknowledged; `refused` is the number
    of records in batches that a broker has not appended, as its error shows."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if refusal := _REFUSED.search(text):
            self.refused += int(refusal[1])
        if not _USUAL.search(text):
            print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


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
        """Return how many records it has put into requests; one that it has sent again counts again."""
        partitions = json.loads(self._latest)["topics"][topic]["partitions"].values()
        return sum(int(partition["txmsgs"]) for partition in partitions)


def main() -> None:
    settings, topic, partitions, number, rate, acks = sys.argv[1:]
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(1))
    statistics, log = Statistics(), Log()
    logger = logging.Logger("librdkafka", logging.DEBUG)
    logger.addHandler(log)
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
            "debug": "eos,msg",  # its stderr contains the reason of each new epoch
        },
        logger=logger,
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
    say("records_sent", records=statistics.records_sent(topic) - log.refused)
    say("shutdown_complete")


if __name__ == "__main__":
    main()
