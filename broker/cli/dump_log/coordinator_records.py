"""Records of a coordinator's internal topic as JSON, in the form of Apache Kafka's DumpLogSegments:

    key: {"type":"0","data":{...}} payload: {"version":"0","data":{...}}

The type is the version of the key. Fields have the names of Kafka's message definitions, bytes are base64, and a
tombstone is <DELETE>.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from gregor.broker.cli.dump_log.records import Contents
from gregor.broker.cli.errors import CommandError
from gregor.protocol.errors import MalformedMessage
from gregor.protocol.records.batch import Record

_VERSION = struct.Struct(">h")

Fields = dict[str, Any]


class Decoded(NamedTuple):
    """The fields of a record; no value is a tombstone."""

    key: Fields
    value: Fields | None


Decode = Callable[[bytes, bytes | None], Decoded | None]
"""From key and value to their fields; None for a key of an unknown type. Raises MalformedMessage and struct.error."""


def coordinator_contents(record: Record, flag: str, topic: str, decode: Decode) -> Contents:
    """Return key and value of one record; a record that cannot be decoded is named and skipped."""
    if record.key is None:
        raise CommandError(f"the record at offset {record.offset} has no key; {flag} is for {topic} only.")
    try:
        kind = version_of(record.key)
        decoded = decode(record.key, record.value)
        if decoded is None:
            return f"Unknown record type {kind} at offset {record.offset}, skipping.", None
        key = _json({"type": str(kind), "data": decoded.key})
        if decoded.value is None or record.value is None:
            return key, "<DELETE>"
        return key, _json({"version": str(version_of(record.value)), "data": decoded.value})
    except (MalformedMessage, struct.error) as error:
        return f"Error at offset {record.offset}, skipping. {error}", None


def version_of(data: bytes) -> int:
    """Return the version that a key or value begins with; raise struct.error if it is too short."""
    return int(_VERSION.unpack_from(data)[0])


def base64_text(data: bytes | None) -> str | None:
    """Return bytes as Kafka's JSON has them."""
    return None if data is None else base64.b64encode(data).decode()


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
