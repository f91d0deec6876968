"""`gregor console-producer`: sends lines as records, with the flags of kafka-console-producer.sh."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO

import click
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from gregor.broker.cli.client import (
    START_TIMEOUT_S,
    Refusal,
    check_reachable,
    client_settings,
    load_file,
    make_client,
)
from gregor.broker.cli.command import KEY_VALUE, OrderlyEnd, bootstrap_option, check_class, command_config_option, run
from gregor.broker.cli.errors import explain, kafka_error
from gregor.broker.cli.line_reader import LineReader, LineRecord

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DELIVERY_TIMEOUT_MS = 120_000
MAX_REQUEST_BYTES = 1_048_576
FLUSH_S = 0.5

EPILOG = """\b
Examples:
  echo 'hello world' | gregor console-producer --topic greetings
  gregor console-producer --topic orders --reader-property parse.key=true --reader-property key.separator=:
  gregor console-producer --topic logs --compression-codec zstd < /var/log/syslog
\b
Reader properties: parse.key, key.separator (tab), parse.headers, headers.delimiter (tab),
headers.separator (,), headers.key.separator (:), null.marker, ignore.error
"""

# Flag of Kafka's tool -> property of the client.
_SETTINGS = {
    "acks": "acks",
    "batch_size": "batch.size",
    "linger_ms": "linger.ms",
    "request_timeout_ms": "request.timeout.ms",
    "retries": "retries",
    "retry_backoff_ms": "retry.backoff.ms",
    "metadata_expiry_ms": "metadata.max.age.ms",
    "max_memory_bytes": "buffer.memory",
    "socket_buffer_size": "send.buffer.bytes",
}


@click.command("console-producer", epilog=EPILOG)
@bootstrap_option("--broker-list")
@command_config_option("--producer.config")
@click.option("--topic", required=True, metavar="NAME", help="Topic of the records.")
@click.option("--sync", is_flag=True, help="Send one record at a time and wait for each.")
@click.option(
    "--compression-codec", is_flag=False, flag_value="gzip", default="none", type=click.Choice(CODECS),
    help="Compress batches; gzip when no codec is named.",
)  # fmt: skip
@click.option(
    "--timeout", "linger_ms", type=click.IntRange(min=0), metavar="MS", help="How long a batch waits for more records."
)
@click.option("--batch-size", "--max-partition-memory-bytes", type=click.IntRange(min=1), help="Bytes per batch.")
@click.option(
    "--request-required-acks",
    "acks",
    type=click.Choice(["-1", "0", "1", "all"]),
    help="Acknowledgements to wait for; default: all.",
)
@click.option("--request-timeout-ms", type=click.IntRange(min=1), help="Longest time until a broker acknowledges.")
@click.option("--message-send-max-retries", "retries", type=click.IntRange(min=0), help="Attempts after the first.")
@click.option("--retry-backoff-ms", type=click.IntRange(min=0), help="Pause before another attempt.")
@click.option(
    "--metadata-expiry-ms", type=click.IntRange(min=0), help="Longest time between two refreshes of metadata."
)
@click.option("--max-memory-bytes", type=click.IntRange(min=1024), help="Memory for records that wait to be sent.")
@click.option("--max-block-ms", type=click.IntRange(min=0), help="Longest wait for metadata or memory; default: 3000.")
@click.option("--line-reader", metavar="CLASS", help="Accepted for Kafka's default, LineMessageReader.")
@click.option("--socket-buffer-size", type=click.IntRange(min=0), help="Size of the socket's send buffer.")
@click.option(
    "--reader-property", "--property", "reader_properties", type=KEY_VALUE, multiple=True,
    help="How lines are parsed, see below; repeatable.",
)  # fmt: skip
@click.option("--reader-config", metavar="FILE", help="Properties file with reader properties.")
@click.option(
    "--command-property", "--producer-property", "client_properties", type=KEY_VALUE, multiple=True,
    help="Client setting; repeatable.",
)  # fmt: skip
def console_producer(**given: Any) -> int:
    """Send each line of standard input as a record."""
    check_class(
        "--line-reader",
        given["line_reader"],
        ("LineMessageReader",),
        "use --reader-property to change how lines are parsed",
    )
    reader_file = load_file(given["reader_config"]) if given["reader_config"] else {}
    reader = LineReader({**reader_file, **dict(given["reader_properties"])})
    settings = producer_settings(given)
    patience_ms = given["max_block_ms"]
    check_reachable(given["bootstrap"], START_TIMEOUT_S if patience_ms is None else patience_ms / 1000)
    producer = make_client(Producer, settings)
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    sender = Sender(producer, given["topic"], settings["error_cb"], sync=given["sync"])
    with OrderlyEnd():
        try:
            for number, line in enumerate(read_lines(sys.stdin.buffer, interactive), start=1):
                sender.send(reader.parse(line, number))
        finally:
            sender.finish()
    return 1 if sender.failed else 0


def producer_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client settings: flags have precedence over --command-property, which has it over the file."""
    properties = dict(given["client_properties"])
    properties.update({_SETTINGS[name]: str(given[name]) for name in _SETTINGS if given[name] is not None})
    properties["compression.type"] = given["compression_codec"]
    settings = client_settings(given["bootstrap"], given["config_file"], properties, "console-producer")
    # Defaults of the Java producer, so that a key goes to the same partition, and a record is written once and accepted
    # up to the same size.
    settings.setdefault("partitioner", "murmur2_random")
    settings.setdefault("delivery.timeout.ms", DELIVERY_TIMEOUT_MS)
    settings.setdefault("message.max.bytes", MAX_REQUEST_BYTES)
    if settings.get("acks", "all") in ("all", "-1") and "retries" not in settings:
        settings.setdefault("enable.idempotence", True)
    return settings


def read_lines(stream: BinaryIO, interactive: bool) -> Iterable[bytes]:
    """Yield lines without their ends (LF or CR LF) as they arrive; print a prompt before each if interactive."""
    while True:
        if interactive:
            print(">", end="", flush=True)
        line = stream.readline()
        if not line:
            return
        yield line.removesuffix(b"\n").removesuffix(b"\r")


class Sender:
    """Sends records, counts those that were not delivered, and reports the first of each cause.

    `send` and `finish` raise KafkaException when a broker refuses the client."""

    def __init__(self, producer: Producer, topic: str, refusal: Refusal, *, sync: bool) -> None:
        self._producer = producer
        self._topic = topic
        self._refusal = refusal
        self._sync = sync
        self._reported: set[str] = set()
        self._sync_error: KafkaError | None = None
        self.failed = 0

    def send(self, record: LineRecord) -> None:
        """Queue the record; with sync, wait for the broker and raise its error. A record that the client itself refuses
        as too large counts as not delivered, as one that a broker refuses."""
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    on_delivery=self._delivered,
                )
                break
            except KafkaException as problem:
                error = kafka_error(problem)
                if self._sync or error is None or error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                self._note_failure(error)
                break
            except BufferError:  # the queue is full until records are delivered
                self._producer.poll(0.1)
                self._refusal.check()
        self._producer.poll(0)
        self._refusal.check()
        if self._sync:
            self._flush()
            self._refusal.check()
            if self._sync_error is not None:
                raise KafkaException(self._sync_error)

    def finish(self) -> None:
        """Wait until each record is delivered or has failed."""
        self._flush()
        if self.failed and not self._sync:
            print(
                f"gregor console-producer: {self.failed} records were not delivered to {self._topic}.", file=sys.stderr
            )
        self._refusal.check()

    def _flush(self) -> None:
        while self._producer.flush(FLUSH_S):
            if self._refusal.error is not None:
                self._producer.purge()

    def _delivered(self, error: KafkaError | None, message: Message[Any, Any]) -> None:
        if error is not None:
            self._note_failure(error)

    def _note_failure(self, error: KafkaError) -> None:
        self.failed += 1
        self._sync_error = error
        if not self._sync and self._refusal.error is None and error.name() not in self._reported:
            self._reported.add(error.name())
            print(
                f"gregor console-producer: a record for {self._topic} was not delivered: {explain(error)}",
                file=sys.stderr,
            )


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(console_producer, arguments)
