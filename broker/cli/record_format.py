"""Conversion of records to lines of text, by the properties of Kafka's DefaultMessageFormatter.

    CreateTime:1700000000000<TAB>Partition:0<TAB>Offset:7<TAB>h1:v1,h2:v2<TAB>key<TAB>value<LF>

Each part has a print.* property; only the value is on by default. key.separator is the tab, headers.separator the
comma, line.separator the line end; null.literal is printed for null.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.line_reader import flag

Decoder = Callable[[bytes], bytes]

_TIMESTAMP_NAMES = {TIMESTAMP_CREATE_TIME: b"CreateTime", TIMESTAMP_LOG_APPEND_TIME: b"LogAppendTime"}


def _number(layout: str) -> Decoder:
    size = struct.calcsize(layout)

    def decode(data: bytes) -> bytes:
        if len(data) != size:
            raise ValueError(f"{len(data)} bytes where the deserializer expects {size}")
        return str(struct.unpack(layout, data)[0]).encode()

    return decode


def _boolean(data: bytes) -> bytes:
    if data not in (b"\x00", b"\x01"):
        raise ValueError("a boolean is one byte, 0 or 1")
    return b"true" if data == b"\x01" else b"false"


# By the last part of the Java class name, with or without its package (org.apache.kafka.common.serialization).
_DECODERS: dict[str, Decoder] = {
    "StringDeserializer": bytes,
    "ByteArrayDeserializer": bytes,
    "ShortDeserializer": _number(">h"),
    "IntegerDeserializer": _number(">i"),
    "LongDeserializer": _number(">q"),
    "FloatDeserializer": _number(">f"),
    "DoubleDeserializer": _number(">d"),
    "BooleanDeserializer": _boolean,
    "UUIDDeserializer": lambda data: str(uuid.UUID(data.decode("ascii"))).encode(),
}
_PARTS = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
PROPERTIES = frozenset(
    [
        *(f"print.{part}" for part in _PARTS),
        *("key.separator", "line.separator", "headers.separator", "null.literal"),
        *("key.deserializer", "value.deserializer", "headers.deserializer"),
    ]
)


def decoder(class_name: str) -> Decoder:
    """Return the decoder in place of a Java deserializer class; raise CommandError for an unknown one."""
    try:
        return _DECODERS[class_name.strip().rpartition(".")[2]]
    except KeyError:
        raise CommandError(f"unknown deserializer {class_name}; known are {', '.join(_DECODERS)}.") from None


class RecordFormat:
    """Formatter of single messages of the client library."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        unknown = sorted(properties.keys() - PROPERTIES)
        if unknown:
            raise CommandError(f"unknown formatter property {unknown[0]}; known are {', '.join(sorted(PROPERTIES))}.")
        self._shown = [part for part in _PARTS if flag(properties, f"print.{part}", default=part == "value")]
        self._separator = properties.get("key.separator", "\t").encode()
        self._line_end = properties.get("line.separator", "\n").encode()
        self._headers_separator = properties.get("headers.separator", ",").encode()
        self._null = properties.get("null.literal", "null").encode()
        self._decoders = {
            part: decoder(properties.get(f"{part}.deserializer", "StringDeserializer"))
            for part in ("key", "value", "headers")
        }

    def line(self, record: Message[Any, Any]) -> bytes:
        """Return the record as text with its line end; raise ValueError if a deserializer does not accept its bytes."""
        parts = [getattr(self, f"_{part}")(record) for part in self._shown]
        return self._separator.join(parts) + self._line_end if parts else b""

    def _timestamp(self, record: Message[Any, Any]) -> bytes:
        kind, timestamp_ms = record.timestamp()
        name = _TIMESTAMP_NAMES.get(kind)
        return b"%s:%d" % (name, timestamp_ms) if name else b"NO_TIMESTAMP"

    def _partition(self, record: Message[Any, Any]) -> bytes:
        return b"Partition:%d" % (record.partition() or 0)

    def _offset(self, record: Message[Any, Any]) -> bytes:
        return b"Offset:%d" % (record.offset() or 0)

    def _delivery(self, record: Message[Any, Any]) -> bytes:
        return b"Delivery:NOT_PRESENT"  # share groups only

    def _epoch(self, record: Message[Any, Any]) -> bytes:
        epoch = record.leader_epoch()
        return b"Epoch:NOT_PRESENT" if epoch is None else b"Epoch:%d" % epoch

    def _headers(self, record: Message[Any, Any]) -> bytes:
        headers: Any = record.headers()
        if not headers:
            return b"NO_HEADERS"
        pairs = [name.encode() + b":" + self._text("headers", value) for name, value in headers]
        return self._headers_separator.join(pairs)

    def _key(self, record: Message[Any, Any]) -> bytes:
        return self._text("key", record.key())

    def _value(self, record: Message[Any, Any]) -> bytes:
        return self._text("value", record.value())

    def _text(self, part: str, data: bytes | None) -> bytes:
        return self._null if data is None else self._decoders[part](data)
