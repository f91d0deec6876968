"""Records to text, against the output of Kafka's DefaultMessageFormatter."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.record_format import RecordFormat

EVERYTHING = {f"print.{part}": "true" for part in ("timestamp", "partition", "offset", "epoch", "headers", "key")}


def record(**given: object) -> Any:
    """Build a message of the client library; None is left out, as some arguments of its constructor refuse it."""
    fields: dict[str, Any] = {
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "key": b"k",
        "value": b"v",
        "headers": [("h", b"1"), ("i", None)],
        "timestamp": (TIMESTAMP_CREATE_TIME, 1700000000000),
        "leader_epoch": 5,
        **given,
    }
    return Message(**{name: value for name, value in fields.items() if value is not None})


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({}, b"v\n"),
        ({"print.key": "true"}, b"k\tv\n"),
        ({"print.key": "true", "print.value": "false"}, b"k\n"),
        ({"print.value": "false"}, b""),
        (EVERYTHING, b"CreateTime:1700000000000\tPartition:3\tOffset:7\tEpoch:5\th:1,i:null\tk\tv\n"),
        ({"print.key": "true", "key.separator": "|", "line.separator": ";"}, b"k|v;"),
        ({"print.headers": "true", "headers.separator": "&", "null.literal": "-"}, b"h:1&i:-\tv\n"),
        ({"print.delivery": "true"}, b"Delivery:NOT_PRESENT\tv\n"),
    ],
)
def test_parts(properties: dict[str, str], text: bytes) -> None:
    assert RecordFormat(properties).line(record()) == text


def test_absent_folders_are_reported() -> None:
    nothing = record(key=None, value=None, headers=None, timestamp=(TIMESTAMP_NOT_AVAILABLE, 0), leader_epoch=None)
    text = RecordFormat({**EVERYTHING, "null.literal": "nil"}).line(nothing)
    assert text == b"NO_TIMESTAMP\tPartition:3\tOffset:7\tEpoch:NOT_PRESENT\tNO_HEADERS\tnil\tnil\n"


def test_bytes_that_are_no_text_are_printed_as_they_are() -> None:
    assert RecordFormat({}).line(record(value=b"\xff\x00")) == b"\xff\x00\n"


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("org.apache.kafka.common.serialization.LongDeserializer", struct.pack(">q", -2), b"-2\n"),
        ("IntegerDeserializer", struct.pack(">i", 42), b"42\n"),
        ("ShortDeserializer", struct.pack(">h", 42), b"42\n"),
        ("DoubleDeserializer", struct.pack(">d", 0.5), b"0.5\n"),
        ("BooleanDeserializer", b"\x01", b"true\n"),
        ("UUIDDeserializer", b"00112233-4455-6677-8899-aabbccddeeff", b"00112233-4455-6677-8899-aabbccddeeff\n"),
        ("StringDeserializer", b"text", b"text\n"),
    ],
)
def test_deserializers(name: str, data: bytes, text: bytes) -> None:
    assert RecordFormat({"value.deserializer": name}).line(record(value=data)) == text


@pytest.mark.parametrize("name", ["LongDeserializer", "BooleanDeserializer", "UUIDDeserializer"])
def test_a_deserializer_that_does_not_fit(name: str) -> None:
    with pytest.raises(ValueError):
        RecordFormat({"value.deserializer": name}).line(record(value=b"\xff\xff"))


@pytest.mark.parametrize("properties", [{"value.deserializer": "com.example.Avro"}, {"print.keys": "true"}])
def test_unknown_properties(properties: dict[str, str]) -> None:
    with pytest.raises(CommandError, match="known are"):
        RecordFormat(properties)
