"""The console tools without a broker: their arguments, and their calls of the client library."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition

from gregor.broker.cli import console_consumer, console_producer
from gregor.broker.cli.client import Refusal
from gregor.broker.cli.command import OrderlyEnd
from gregor.broker.cli.line_reader import LineRecord
from gregor.broker.cli.record_format import RecordFormat


def producer_settings(*arguments: str) -> dict[str, object]:
    context = console_producer.console_producer.make_context("x", ["--topic", "t", *arguments])
    return console_producer.producer_settings(context.params)


def consumer_settings(*arguments: str) -> dict[str, object]:
    context = console_consumer.console_consumer.make_context("x", ["--topic", "t", *arguments])
    return console_consumer.consumer_settings(context.params)


def test_producer_defaults_are_those_of_the_java_client() -> None:
    settings = producer_settings()
    assert settings["partitioner"] == "murmur2_random"
    assert settings["enable.idempotence"] is True
    assert settings["compression.type"] == "none"
    assert settings["client.id"] == "console-producer"
    assert settings["message.max.bytes"] == 1_048_576


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        (["--compression-codec"], "compression.type", "gzip"),
        (["--compression-codec", "lz4"], "compression.type", "lz4"),
        (["--broker-list", "h:1"], "bootstrap.servers", "h:1"),
        (["--timeout", "7"], "linger.ms", "7"),
        (["--producer-property", "linger.ms=3"], "linger.ms", "3"),
        (["--command-property", "linger.ms=3", "--timeout", "4"], "linger.ms", "4"),
        (["--request-required-acks", "1"], "acks", "1"),
        (["--socket-buffer-size", "9"], "socket.send.buffer.bytes", "9"),
        (["--producer-property", "max.request.size=9"], "message.max.bytes", "9"),
    ],
)
def test_producer_flags(arguments: list[str], key: str, value: str) -> None:
    assert producer_settings(*arguments)[key] == value


@pytest.mark.parametrize("arguments", [["--request-required-acks", "1"], ["--message-send-max-retries", "0"]])
def test_a_producer_that_may_lose_records_is_not_idempotent(arguments: list[str]) -> None:
    assert "enable.idempotence" not in producer_settings(*arguments)


class FakeProducer:
    """A client that refuses values above four bytes."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def produce(self, _topic: str, *, value: bytes, **_others: object) -> None:
        if len(value) > 4:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "Message size too large"))
        self.values.append(value)

    def poll(self, _timeout_s: float) -> None:
        """There is nothing to serve."""

    def flush(self, _timeout_s: float) -> int:
        """There is nothing to wait for."""
        return 0


def test_the_records_after_one_that_is_too_large_are_sent(capsys: pytest.CaptureFixture[str]) -> None:
    producer: Any = FakeProducer()
    sender = console_producer.Sender(producer, "t", Refusal(), sync=False)
    for value in (b"a", b"large", b"larger", b"b"):
        sender.send(LineRecord(None, value, []))
    sender.finish()
    assert producer.values == [b"a", b"b"]
    assert sender.failed == 2
    first, last = capsys.readouterr().err.splitlines()
    assert "too large" in first and "Raise max.request.size of the client" in first
    assert last == "gregor console-producer: 2 records were not delivered to t."


def test_with_sync_a_record_that_is_too_large_ends_the_command() -> None:
    producer: Any = FakeProducer()
    sender = console_producer.Sender(producer, "t", Refusal(), sync=True)
    with pytest.raises(KafkaException):
        sender.send(LineRecord(None, b"large", []))


class RefusedProducer(FakeProducer):
    """A client that has no connection: its records are delivered by no flush, and only a purge removes them."""

    def flush(self, _timeout_s: float) -> int:
        return len(self.values)

    def purge(self) -> None:
        self.values.clear()


@pytest.mark.parametrize("sync", [False, True])
def test_records_of_a_producer_that_is_refused_are_not_waited_for(sync: bool) -> None:
    producer: Any = RefusedProducer()
    refusal = Refusal()
    sender = console_producer.Sender(producer, "t", refusal, sync=sync)
    refusal(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    with pytest.raises(KafkaException, match="wrong password"):
        sender.send(LineRecord(None, b"a", []))
    with pytest.raises(KafkaException, match="wrong password"):
        sender.finish()
    assert producer.values == []


def test_lines_keep_everything_but_their_ends(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.BytesIO(b"a\r\nb \n\nlast\r")
    assert list(console_producer.read_lines(stream, interactive=False)) == [b"a", b"b ", b"", b"last"]
    assert capsys.readouterr().out == ""
    assert list(console_producer.read_lines(io.BytesIO(b"a\n"), interactive=True)) == [b"a"]
    assert capsys.readouterr().out == ">>"


def test_a_consumer_without_a_group_leaves_no_offsets_behind() -> None:
    settings = consumer_settings()
    assert str(settings["group.id"]).startswith("console-consumer-")
    assert settings["enable.auto.commit"] is False
    assert settings["auto.offset.reset"] == "latest"


def test_consumer_with_a_group_commits_printed_records() -> None:
    settings = consumer_settings("--group", "g", "--from-beginning", "--isolation-level", "read_committed")
    assert settings["group.id"] == "g"
    assert "enable.auto.commit" not in settings
    assert settings["enable.auto.offset.store"] is False
    assert settings["auto.offset.reset"] == "earliest"
    assert settings["isolation.level"] == "read_committed"
    assert consumer_settings("--consumer-property", "group.id=h")["group.id"] == "h"


@pytest.mark.parametrize(
    ("arguments", "level"),
    [
        ([], "read_uncommitted"),
        (["--consumer-property", "isolation.level=read_committed"], "read_committed"),
        (["--isolation-level", "read_committed"], "read_committed"),
        (
            ["--consumer-property", "isolation.level=read_committed", "--isolation-level", "read_uncommitted"],
            "read_uncommitted",
        ),
    ],
)
def test_the_isolation_level_of_the_client_settings_counts_without_the_flag(arguments: list[str], level: str) -> None:
    assert consumer_settings(*arguments)["isolation.level"] == level


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["--from-beginning"], "exactly one of --topic and --include"),
        (["--topic", "t", "--include", "t"], "exactly one of --topic and --include"),
        (["--topic", "t", "--offset", "3"], "needs --partition"),
        (["--include", "t", "--partition", "0"], "needs --topic"),
        (["--topic", "t", "--partition", "2147483648"], "0<=x<=2147483647"),
        (["--topic", "t", "--partition", "0", "--group", "g"], "--partition and --group contradict each other"),
        (["--topic", "t", "--partition", "0", "--from-beginning", "--offset", "3"], "contradict"),
        (["--topic", "t", "--group", "g", "--command-property", "group.id=h"], "--group g and group.id=h"),
        (["--topic", "t", "--from-beginning", "--command-property", "auto.offset.reset=latest"], "contradict"),
        (["--topic", "t", "--property", "print.nothing=true"], "unknown formatter property"),
        (["--include", "t("], "'t(' is not a regular expression"),
    ],
)
def test_wrong_consumer_arguments_are_refused(
    arguments: list[str], cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert console_consumer.main(arguments) == 1
    assert cause in capsys.readouterr().err


class FakeConsumer:
    """A client of a cluster with these topics, or of one that does not answer; `subscribed` has each subscription."""

    def __init__(self, *topics: str) -> None:
        self.topics: tuple[str, ...] | None = topics
        self.subscribed: list[list[str]] = []

    def list_topics(self, timeout: float) -> SimpleNamespace:
        if self.topics is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, f"no answer in {timeout} s"))
        return SimpleNamespace(topics=dict.fromkeys(self.topics))

    def subscribe(self, topics: list[str]) -> None:
        self.subscribed.append(topics)

    def unsubscribe(self) -> None:
        self.subscribed.append([])


def pattern_subscription(consumer: Any, text: str, every_ms: str = "0") -> console_consumer.PatternSubscription:
    settings = {"error_cb": Refusal(), "metadata.max.age.ms": every_ms}
    return console_consumer.PatternSubscription(consumer, re.compile(text), True, settings)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"orders-\d+", ["orders-12"]),
        (r"orders-\d{1,2}|returns", ["orders-12", "returns"]),
        (r"(?!orders-d$).*", ["orders-12", "orders-12-eu", "returns"]),
        ("orders", []),
    ],
)
def test_included_are_the_topics_whose_whole_name_matches(text: str, found: list[str]) -> None:
    consumer = FakeConsumer("orders-d", "orders-12", "orders-12-eu", "returns", "__consumer_offsets")
    pattern_subscription(consumer, text)
    assert consumer.subscribed == ([found] if found else [])


def test_new_and_deleted_topics_change_the_subscription(capsys: pytest.CaptureFixture[str]) -> None:
    consumer = FakeConsumer("other")
    subscription = pattern_subscription(consumer, r"t\d")
    assert capsys.readouterr().err == (
        "gregor console-consumer: waiting for a topic whose whole name matches 't\\d'.\n"
    )
    for topics in (("t1", "other"), ("t1",), None, ("t2", "t1"), ()):
        consumer.topics = topics
        subscription.refresh()
    assert consumer.subscribed == [["t1"], ["t1", "t2"], []]


def test_topics_are_found_once_in_metadata_max_age_ms() -> None:
    consumer = FakeConsumer("t1")
    subscription = pattern_subscription(consumer, r"t\d", every_ms="60000")
    consumer.topics = ("t1", "t2")
    subscription.refresh()
    assert consumer.subscribed == [["t1"]]


class Sending(FakeConsumer):
    """A client that receives these errors and records, and then nothing."""

    def __init__(self, *received: KafkaError | bytes) -> None:
        super().__init__()
        self.received = [
            SimpleNamespace(
                error=lambda one=one: one if isinstance(one, KafkaError) else None,
                value=lambda one=one: one,
                topic=lambda: "t",
                partition=lambda: 0,
                offset=lambda number=number: number,
            )
            for number, one in enumerate(received)
        ]
        self.stored: list[int] = []

    def poll(self, _timeout_s: float) -> Any:
        return self.received.pop(0) if self.received else None

    def consume(self, _count: int, timeout: float) -> list[Any]:
        return []

    def store_offsets(self, offsets: list[TopicPartition]) -> None:
        self.stored += [part.offset for part in offsets]


def printed(consumer: Any, end: OrderlyEnd) -> None:
    console_consumer.Printer(consumer, RecordFormat({}), Refusal(), False).run(2, 60_000, end)


def test_output_that_was_blocked_too_long_does_not_end_the_consumer(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    exceeded = KafkaError(KafkaError._MAX_POLL_EXCEEDED, "Application maximum poll interval exceeded")
    consumer = Sending(b"a", exceeded, exceeded, b"b")
    with OrderlyEnd() as end:
        printed(consumer, end)
    captured = capsysbinary.readouterr()
    assert (captured.out, consumer.stored) == (b"a\nb\n", [1, 4])
    assert captured.err.count(b"\n") == 1 and b"longer than max.poll.interval.ms" in captured.err


def test_an_error_of_the_broker_ends_the_consumer() -> None:
    consumer = Sending(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no permission"))
    with OrderlyEnd() as end, pytest.raises(KafkaException, match="no permission"):
        printed(consumer, end)


def test_deleted_topics_of_a_pattern_are_not_created_again() -> None:
    given = console_consumer.console_consumer.make_context("x", ["--include", "t.*"]).params
    assert console_consumer.consumer_settings(given)["allow.auto.create.topics"] is False
    assert consumer_settings()["allow.auto.create.topics"] is True


def test_offsets() -> None:
    assert console_consumer.parse_offset(None, False) == OFFSET_END
    assert console_consumer.parse_offset(None, True) == OFFSET_BEGINNING
    assert console_consumer.parse_offset("Earliest", False) == OFFSET_BEGINNING
    assert console_consumer.parse_offset("latest", False) == OFFSET_END
    assert console_consumer.parse_offset("42", False) == 42
    assert console_consumer.parse_offset(str(2**63 - 1), False) == 2**63 - 1
    for text in ("-1", "soon", "", str(2**63)):
        with pytest.raises(Exception, match="give .earliest., .latest. or a number"):
            console_consumer.parse_offset(text, False)
