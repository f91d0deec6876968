"""Messages as contents of a log line: bounded, and without secrets.

The names are those of Apache Kafka's JSON of requests, which are camel-case. Bytes other than ids are never shown, only
their number (`recordsSizeInBytes`): they are records, tokens of logins, hashes of passwords, or data of applications.
The values of settings are not shown either: clients may put passwords there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gregor.protocol.api_keys import ApiKey
from gregor.protocol.codec.classes import Structure
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import ZERO_UUID, uuid_to_text

MAX_VALUES = 200
"""Values of one message in the log, at most."""
MAX_TEXT = 200
"""Characters of one text."""
MAX_ERRORS = 1000
"""Structs of one response whose error codes are counted, at most."""
HIDDEN = "(hidden)"
UUID_BYTES = len(ZERO_UUID)
_WITH_SETTINGS = frozenset({ApiKey.CREATE_TOPICS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS})
_VALUE = "value"
_ERROR_CODE = "error_code"


class _Contents:
    """One message, of which MAX_VALUES are shown."""

    def __init__(self, api_key: int) -> None:
        self._hides_values = api_key in _WITH_SETTINGS
        self._left = MAX_VALUES

    def of_struct(self, struct: Structure) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for name, value in fields_of(struct):
            if self._left <= 0:
                shown["..."] = "the rest is left out"
                break
            size = _size(value)
            if size == UUID_BYTES and name.endswith("_id"):
                self._left -= 1
                shown[camel_case(name)] = uuid_to_text(value)
            elif size is not None:
                self._left -= 1
                shown[f"{camel_case(name)}SizeInBytes"] = size
            elif name == _VALUE and self._hides_values:
                self._left -= 1
                shown[camel_case(name)] = HIDDEN
            else:
                shown[camel_case(name)] = self._of_value(value)
        return shown

    def _of_value(self, value: object) -> Any:
        if isinstance(value, Structure):
            return self.of_struct(value)
        if isinstance(value, (list, tuple)):
            shown: list[Any] = []
            for item in value:
                if self._left <= 0:
                    shown.append(f"... {len(value) - len(shown)} more")
                    break
                shown.append(self._of_value(item))
            return shown
        self._left -= 1
        if value is None or isinstance(value, (bool, int, float)):
            return value
        size = _size(value)
        if size is not None:
            return f"{size} bytes"
        text = str(value)
        return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}... ({len(text)} characters)"


def contents(api_key: int, message: Structure) -> dict[str, Any]:
    """Return what a line shows of a request or response of this API, for JSON."""
    return _Contents(api_key).of_struct(message)


def error_counts(response: Structure) -> dict[str, int]:
    """Return how often each error, and NONE, is in a response."""
    found: Counter[str] = Counter()
    rest: list[Structure] = [response]
    seen = 0
    while rest and seen < MAX_ERRORS:
        struct = rest.pop()
        seen += 1
        for name, value in fields_of(struct):
            if name == _ERROR_CODE and isinstance(value, int):
                found[_error_name(value)] += 1
            elif isinstance(value, Structure):
                rest.append(value)
            elif isinstance(value, list):
                rest += [item for item in value[: MAX_ERRORS - seen] if isinstance(item, Structure)]
    return dict(found)


def fields_of(struct: Structure) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the fields of a message or struct."""
    for class_ in reversed(type(struct).__mro__):
        for name in class_.__dict__.get("__slots__", ()):
            yield name, getattr(struct, name)


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def _size(value: object) -> int | None:
    """Return the size of bytes, and of a piece of a file in their place; None for other values."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return len(value)
    if isinstance(value, Structure):
        return None
    size = getattr(value, "size_bytes", None)
    return size if isinstance(size, int) else None


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
