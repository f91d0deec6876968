"""Messages as JSON, in the form of Apache Kafka's generated JsonConverter classes.

A field has the camel-case name of Kafka's message definition. A uuid is text, bytes are base64, and a tagged field that
has its default is left out.
"""

from __future__ import annotations

from typing import Any

from gregor.broker.cli.dump_log.coordinator_records import Fields, base64_text
from gregor.protocol import messages
from gregor.protocol.codec.model import Field, Struct
from gregor.protocol.ids import uuid_to_text
from gregor.protocol.messages import ApiMessage


def message_fields(message: ApiMessage, version: int) -> Fields:
    """Return the fields that a message has in a version."""
    return _struct(messages.schema(type(message).__name__), message, version)


def _struct(struct: Struct, value: Any, version: int) -> Fields:
    fields: Fields = {}
    for field in struct.fields:
        content = getattr(value, field.name)
        if version in field.versions and not (version in field.tagged and _is_default(field, content)):
            fields[_camel_case(field.name)] = _content(field, content, version)
    return fields


def _is_default(field: Field, content: Any) -> bool:
    if field.default is None or content is None or not (field.is_array or field.is_struct):
        return bool(content == field.default)
    return bool(content == type(content)())


def _content(field: Field, content: Any, version: int) -> Any:
    if content is None:
        return None
    if field.is_array:
        return [_element(field, element, version) for element in content]
    return _element(field, content, version)


def _element(field: Field, element: Any, version: int) -> Any:
    if field.struct is not None:
        return _struct(field.struct, element, version)
    if field.element == "uuid":
        return uuid_to_text(element)
    if field.element == "bytes":
        return base64_text(element)
    return element


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
