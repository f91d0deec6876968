"""`gregor console-consumer`: prints records, with the flags and the output of kafka-console-consumer.sh."""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import click
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import ClusterMetadata

from gregor.broker.cli.client import (
    Refusal,
    check_reachable,
    client_settings,
    fetch_metadata,
    load_file,
    make_client,
)
from gregor.broker.cli.command import KEY_VALUE, OrderlyEnd, bootstrap_option, check_class, command_config_option, run
from gregor.broker.cli.errors import explain
from gregor.broker.cli.numbers import PARTITION
from gregor.broker.cli.record_format import RecordFormat
from gregor.broker.cli.topics import name_pattern, whole_matches
from gregor.broker.cli.zookeeper_option import zookeeper_option
from gregor.config.definitions import LONG_MAX
from gregor.protocol.topic_partition import TopicPartitionKey

DEFAULT_FORMATTER, NO_FORMATTER = "DefaultMessageFormatter", "NoOpMessageFormatter"
BATCH_RECORDS = 500
POLL_S = 0.5
METADATA_MAX_AGE_MS = 300_000
"""The default of metadata.max.age.ms of Java's clients."""
REFRESH_TIMEOUT_S = 3.0
# Transient errors: the topic is being created, or its leader is being elected.
TRANSIENT = frozenset([KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.LEADER_NOT_AVAILABLE])

EPILOG = """\b
Examples:
  gregor console-consumer --topic greetings --from-beginning
  gregor console-consumer --topic orders --group billing --formatter-property print.key=true
  gregor console-consumer --topic orders --partition 0 --offset 42 --max-messages 10
  gregor console-consumer --include 'orders.*' --from-beginning --timeout-ms 5000
\b
Formatter properties: print.timestamp, print.partition, print.offset, print.epoch, print.headers,
print.key, print.value (true), key.separator (tab), line.separator, headers.separator (,),
null.literal (null), key.deserializer, value.deserializer, headers.deserializer
"""


@click.command("console-consumer", epilog=EPILOG)
@bootstrap_option()
@zookeeper_option
@command_config_option("--consumer.config")
@click.option("--topic", metavar="NAME", help="The topic to read.")
@click.option("--formatter", metavar="CLASS", help="DefaultMessageFormatter, or NoOpMessageFormatter to print nothing.")
@click.option(
    "--include", "--whitelist", metavar="REGEX", help="Read all topics whose whole name matches, instead of --topic."
)
@click.option("--partition", type=PARTITION, help="Read only this partition, outside any group.")
@click.option("--offset", help="With --partition: first offset, a number, 'earliest' or 'latest' (the default).")
@click.option(
    "--from-beginning", is_flag=True, help="Start with the oldest record unless the group has a committed offset."
)
@click.option("--max-messages", type=click.IntRange(min=0), help="End after this many records.")
@click.option("--timeout-ms", type=int, help="End when no record has arrived for this time.")
@click.option("--group", metavar="ID", help="Consumer group; by default a new one that commits no offsets.")
@click.option(
    "--isolation-level", type=click.Choice(["read_uncommitted", "read_committed"]),
    help="read_committed: only records of committed transactions; default: isolation.level of the client settings, else"
    " read_uncommitted.",
)  # fmt: skip
@click.option(
    "--formatter-property", "--property", "formatter_properties", type=KEY_VALUE, multiple=True,
    help="How records are printed, see below; repeatable.",
)  # fmt: skip
@click.option("--formatter-config", metavar="FILE", help="Properties file with formatter properties.")
@click.option("--key-deserializer", metavar="CLASS", help="Short for --formatter-property key.deserializer=CLASS.")
@click.option("--value-deserializer", metavar="CLASS", help="Short for --formatter-property value.deserializer=CLASS.")
@click.option(
    "--command-property", "--consumer-property", "client_properties", type=KEY_VALUE, multiple=True,
    help="Client setting; repeatable.",
)  # fmt: skip
@click.option("--skip-message-on-error", is_flag=True, help="Continue after a record that cannot be printed.")
def console_consumer(**given: Any) -> None:
    """Print the records of a topic: new ones, or all with --from-beginning."""
    check_combinations(given)
    remedy = "use --formatter-property, or `gregor dump-log --offsets-decoder` for __consumer_offsets"
    kind = check_class("--formatter", given["formatter"], (DEFAULT_FORMATTER, NO_FORMATTER), remedy)
    formatter = RecordFormat({"print.value": "false"} if kind == NO_FORMATTER else formatter_properties(given))
    pattern = name_pattern(given["include"], given["include"]) if given["include"] else None
    settings = consumer_settings(given)
    # Java's consumer has this setting, librdkafka has not.
    exclude_internal = settings.pop("exclude.internal.topics", "true").lower() != "false"
    check_reachable(given["bootstrap"])
    consumer = make_client(Consumer, settings)
    printer = Printer(consumer, formatter, settings["error_cb"], given["skip_message_on_error"])
    with OrderlyEnd() as end:
        try:
            subscription = None
            if pattern is None:
                begin(consumer, given)
            else:
                subscription = PatternSubscription(consumer, pattern, exclude_internal, settings)
            printer.run(given["max_messages"], given["timeout_ms"], end, subscription)
        finally:
            consumer.close()
            print(f"Processed a total of {printer.count} messages", file=sys.stderr)


def check_combinations(given: Mapping[str, Any]) -> None:
    """Raise UsageError for flags that contradict each other, as Kafka's tool does."""
    if bool(given["topic"]) == bool(given["include"]):
        raise click.UsageError("Give exactly one of --topic and --include.")
    if given["partition"] is None:
        if given["offset"]:
            raise click.UsageError("--offset needs --partition.")
        return
    if given["include"]:
        raise click.UsageError("--partition needs --topic.")
    if given["group"]:
        raise click.UsageError(
            "--partition and --group contradict each other: a single partition is read without a group."
        )
    if given["offset"] and given["from_beginning"]:
        raise click.UsageError("--from-beginning and --offset contradict each other.")


def parse_offset(text: str | None, from_beginning: bool) -> int:
    """Return the first offset to read, as a number of the client library."""
    if text is None:
        return OFFSET_BEGINNING if from_beginning else OFFSET_END
    named = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}
    if text.lower() in named:
        return named[text.lower()]
    if not text.isdecimal() or len(text) > 19 or int(text) > LONG_MAX:
        raise click.UsageError(f"--offset {text}: give 'earliest', 'latest' or a number from 0 to {LONG_MAX}.")
    return int(text)


def formatter_properties(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the formatter properties: --formatter-property overrides the other flags, which override the file."""
    properties = load_file(given["formatter_config"]) if given["formatter_config"] else {}
    for part in ("key", "value"):
        if given[f"{part}_deserializer"]:
            properties[f"{part}.deserializer"] = given[f"{part}_deserializer"]
    return {**properties, **dict(given["formatter_properties"])}


def consumer_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client settings; without --group, the group is new and commits no offsets."""
    properties = dict(given["client_properties"])
    settings = client_settings(given["bootstrap"], given["config_file"], properties, "console-consumer")
    group = settings.get("group.id")
    if group and given["group"] and group != given["group"]:
        raise click.UsageError(
            f"--group {given['group']} and group.id={group} of the client settings contradict each other."
        )
    if group and given["partition"] is not None:
        raise click.UsageError(
            "--partition and group.id contradict each other: a single partition is read without a group."
        )
    reset = settings.get("auto.offset.reset")
    if given["from_beginning"] and reset not in (None, "earliest"):
        raise click.UsageError(f"--from-beginning and auto.offset.reset={reset} contradict each other.")
    settings.setdefault("auto.offset.reset", "earliest" if given["from_beginning"] else "latest")
    if given["group"] or group:
        settings["group.id"] = given["group"] or group
    else:
        settings["group.id"] = f"console-consumer-{random.randrange(100_000)}"
        settings.setdefault("enable.auto.commit", False)
    # The default of Kafka's tool; that of the client library is read_committed.
    settings["isolation.level"] = given["isolation_level"] or settings.get("isolation.level", "read_uncommitted")
    # As the Java client does. A topic that matched --include and was deleted is not created again.
    settings.setdefault("allow.auto.create.topics", given["include"] is None)
    # Only offsets of printed records may be committed.
    settings["enable.auto.offset.store"] = False
    return settings


def begin(consumer: Consumer, given: Mapping[str, Any]) -> None:
    """Subscribe to the topics, or assign the one partition."""
    if given["partition"] is not None:
        offset = parse_offset(given["offset"], given["from_beginning"])
        consumer.assign([TopicPartition(given["topic"], given["partition"], offset)])
    else:
        consumer.subscribe([given["topic"]])


class PatternSubscription:
    """A subscription to the topics whose whole name matches, as that of Java's consumer; the client library has no
    lookahead and no \\d. New topics are found every metadata.max.age.ms."""

    def __init__(
        self, consumer: Consumer, pattern: re.Pattern[str], exclude_internal: bool, settings: Mapping[str, Any]
    ) -> None:
        """Subscribe; raise KafkaException if no broker sends metadata."""
        self._consumer = consumer
        self._pattern = pattern
        self._exclude_internal = exclude_internal
        self._every_s = int(settings.get("metadata.max.age.ms", METADATA_MAX_AGE_MS)) / 1000
        self._names: list[str] = []
        self._subscribe(fetch_metadata(consumer, settings["error_cb"]))
        self._due_s = time.monotonic() + self._every_s
        if not self._names:
            print(
                f"gregor console-consumer: waiting for a topic whose whole name matches '{pattern.pattern}'.",
                file=sys.stderr,
            )

    def refresh(self) -> None:
        """Find new and deleted topics if it is time to."""
        if time.monotonic() < self._due_s:
            return
        with suppress(KafkaException):  # no broker answers: the next time one may
            self._subscribe(self._consumer.list_topics(timeout=REFRESH_TIMEOUT_S))
        self._due_s = time.monotonic() + self._every_s

    def _subscribe(self, metadata: ClusterMetadata) -> None:
        names = whole_matches(metadata.topics, self._pattern, self._exclude_internal)
        if names == self._names:
            return
        self._names = names
        if names:
            self._consumer.subscribe(names)
        else:
            self._consumer.unsubscribe()


class Printer:
    """Prints and counts the records that the consumer receives."""

    def __init__(self, consumer: Consumer, formatter: RecordFormat, refusal: Refusal, skip_on_error: bool) -> None:
        self._consumer = consumer
        self._formatter = formatter
        self._refusal = refusal
        self._skip_on_error = skip_on_error
        self._out = sys.stdout.buffer
        self._reported: set[int] = set()
        self.count = 0

    def run(
        self,
        max_messages: int | None,
        timeout_ms: int | None,
        end: OrderlyEnd,
        subscription: PatternSubscription | None = None,
    ) -> None:
        """Print until there were max_messages, or none for timeout_ms; without these limits, until a signal."""
        last_s = time.monotonic()
        while max_messages is None or self.count < max_messages:
            if subscription is not None:
                subscription.refresh()
            wanted = BATCH_RECORDS if max_messages is None else min(BATCH_RECORDS, max_messages - self.count)
            batch = self._receive(wanted)
            if batch:
                with end.deferred():
                    self._print(batch)
                last_s = time.monotonic()
            elif timeout_ms is not None and timeout_ms >= 0 and time.monotonic() - last_s > timeout_ms / 1000:
                return

    def _receive(self, wanted: int) -> list[Message[Any, Any]]:
        """Wait for a record; return it with those that are available already."""
        first = self._consumer.poll(POLL_S)
        self._refusal.check()
        if first is None:
            return []
        rest = self._consumer.consume(wanted - 1, timeout=0) if wanted > 1 else []
        return [message for message in (first, *rest) if self._is_record(message)]

    def _is_record(self, message: Message[Any, Any]) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:  # the next poll joins the group again
            note = (
                "the output was blocked for longer than max.poll.interval.ms, so this consumer left its group; it joins"
                " again, and reads on from the committed offsets, or as at its start where there are none."
            )
        elif error.code() in TRANSIENT:
            note = f"waiting for the topic: {explain(error)}"
        else:
            raise KafkaException(error)
        if error.code() not in self._reported:
            self._reported.add(error.code())
            print(f"gregor console-consumer: {note}", file=sys.stderr)
        return False

    def _print(self, batch: list[Message[Any, Any]]) -> None:
        printed: dict[TopicPartitionKey, int] = {}
        try:
            for message in batch:
                try:
                    self._out.write(self._formatter.line(message))
                except ValueError as error:
                    where = f"{message.topic()}-{message.partition()} offset {message.offset()}"
                    if not self._skip_on_error:
                        raise click.ClickException(
                            f"cannot print {where}: {error}. Choose another deserializer, or skip such records with "
                            "--skip-message-on-error."
                        ) from None
                    print(f"gregor console-consumer: skipped {where}: {error}.", file=sys.stderr)
                self.count += 1
                printed[message.topic() or "", message.partition() or 0] = (message.offset() or 0) + 1
        finally:
            self._out.flush()
            self._store([TopicPartition(topic, partition, at) for (topic, partition), at in printed.items()])

    def _store(self, offsets: list[TopicPartition]) -> None:
        try:
            if offsets:
                self._consumer.store_offsets(offsets=offsets)
        except KafkaException as problem:
            # A partition that was revoked meanwhile belongs to another member, which will print these records again.
            if problem.args[0].code() != KafkaError._STATE:
                raise


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(console_consumer, arguments)
