"""The console tools without a broker: their arguments, and their calls of the client library."""

from __future__ import annotations

import io
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException

from gregor.broker.cli import console_consumer, console_producer
from gregor.broker.cli.line_reader import LineRecord


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

    def flush(self) -> None:
        """There is nothing to wait for."""


def test_the_records_after_one_that_is_too_large_are_sent(capsys: pytest.CaptureFixture[str]) -> None:
    producer: Any = FakeProducer()
    sender = console_producer.Sender(producer, "t", sync=False)
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
    sender = console_producer.Sender(producer, "t", sync=True)
    with pytest.raises(KafkaException):
        sender.send(LineRecord(None, b"large", []))


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
    ],
)
def test_wrong_consumer_arguments_are_refused(
    arguments: list[str], cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert console_consumer.main(arguments) == 1
    assert cause in capsys.readouterr().err


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
