"""The format of values, as the options of a job choose it."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("bytes", "text", "json", "avro", "protobuf")
WITH_SCHEMA = ("json", "avro", "protobuf")
"""The kinds whose values are fields, which a schema names."""
DECODED_IN_PYTHON = ("avro", "protobuf")


@dataclass(frozen=True)
class ValueFormat:
    """The kind of values, and what is needed to decode them; it can be pickled."""

    kind: str = "text"
    schema: str | None = None
    """The schema of the columns: DDL for JSON; for Avro its JSON; for Protobuf a FileDescriptorSet in base64."""
    framed: bool = False
    """Whether the values begin with the five bytes of a schema registry."""
    registry: str | None = None
    """The URL of the registry with the schemas of the writers."""
    message: str | None = None
    """The full name of the Protobuf message."""
